"""A run whose lanes are played by groups in the same process: gateways in threads; learner, inference, envs by hand.

The actions of a round depend on its version, and the version on all that was played before. So one wrong bit anywhere
changes everything after it.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from actors.lanes import Lanes
from ringside.cluster.gateway import GatewayBalancer
from ringside.cluster.group_host import GroupHost
from ringside.cluster.node_object import Hosts
from ringside.cluster.remote_lanes import RemoteLanes
from shared.config.settings import Config, ResolvedConfig
from shared.memory.board import Stop
from shared.memory.mailbox import Mailbox
from shared.memory.plan import Elsewhere, Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Stopped, Waiter
from shared.process.child import Doorbells
from tests.support.counting_env import Counting

ENVS, LANE_ENVS, ROUND_TICKS, ROUNDS = 8, 2, 17, 6
SECONDS = 60.0
NUMERICS = "bits"


def make_plan(
    gateways: int, span: int = 1, rounds: int = ROUNDS, mixed: bool = False, head_share: float = 0.0, **settings: Any
) -> Plan:
    """Plan of a short run with two cells; a snapshot every `span` rounds; other settings as given."""
    round_steps = ROUND_TICKS * ENVS
    sizes = {"envs": ENVS, "lane_envs": LANE_ENVS, "round_steps": round_steps, "total_steps": rounds * round_steps}
    sizes |= {"snapshot_every_steps": span * round_steps, "batch_size": round_steps, "inference_batch": ENVS // 2}
    machine = {"actors": 1, "inference_threads": 1, "learner_members": 1, "learner_parts": 4, "device": "cpu"}
    rules = {"eval_episodes": 1, "eval_epsilon": 0.0, "eval_max_frames": 100, "eval_actions": "greedy"}
    if settings.get("method", "dqn") == "dqn":  # few actions are random, so that most depend on the version
        rules |= {"replay_size": ROUNDS * round_steps, "epsilon_start": 0.1, "epsilon_end": 0.1}
    small = {"network": "small", "precision": "fp32", "run_dir": Path("."), **sizes, **machine, **rules}
    config = ResolvedConfig.from_config(Config().with_settings(**small | settings))
    terms = {"cores": 2, "numerics": NUMERICS, "mixed": mixed, "head_share": head_share}
    return Plan(config, 4, Elsewhere(gateways, settings=terms))


def answer(memory: Memory) -> Iterator[int]:
    """Answer the lanes of cells that ask as a whole, as the version says, one after the other."""
    mailbox, board = memory.mailbox, memory.board
    asking = mailbox.request.values != mailbox.reply.values
    for lane in range(memory.run_schedule.lanes):
        cell = memory.plan.cell_of(lane)
        if not asking[cell].all():
            continue
        number = mailbox.request.values[lane : lane + 1].copy()
        tick = int(Mailbox.tick_of(number)[0])
        if tick // memory.run_schedule.round_ticks > board.committed:
            continue
        version = int(memory.weights.data[memory.weights.current % 2][0])
        envs = lane * LANE_ENVS + np.arange(LANE_ENVS)
        actions = ((version + 3 * envs + 7 * tick) % 4).astype(np.uint8)
        declared = {name: view[lane : lane + 1] * 0 + version % 97 + tick for name, view in mailbox.declared.items()}
        mailbox.answer(np.array([lane]), number, actions[None], declared)
        yield lane


class Player:
    """Actors of a region."""

    def __init__(self, memory: Memory, actors: int, doorbells: list[Doorbell], more: int = 0) -> None:
        self.memory, self._doorbells = memory, doorbells
        first = memory.plan.processes.indexes_of(Role.ACTOR).start
        waiters = [Waiter(memory.board, first + actor, doorbells[actor]) for actor in range(actors)]
        self.actors = [
            Lanes(memory, actor, lambda index: Counting(10 * index + more), doorbells, waiter)
            for actor, waiter in enumerate(waiters)
        ]

    def turn(self) -> None:
        """Let every actor do what it can, once."""
        for lane in answer(self.memory):
            self._doorbells[self.memory.board.lane_owner[lane] % len(self._doorbells)].ring()
        for actor in self.actors:
            while actor.prefetch_env() or actor.adopt():
                pass
            actor.hand_over()
            for lane in actor.ready():
                actor.step(lane)


class PlayedGroup(GroupHost):
    """A group without a program: calls themselves let its actors play."""

    more = 0
    """Added to the pixels of its envs: another game, where not 0."""

    def _start(self, memory: Memory) -> None:
        actors = self._doorbells[self._plan.processes.indexes_of(Role.ACTOR).start :]
        self.player = Player(memory, self._plan.actors, actors, self.more)

    def _living(self) -> Memory:
        self.player.turn()
        return self._memory

    def _stop(self) -> None:
        if self._memory is not None:
            del self.player
        super()._stop()


class RemoteWorld:
    """One run.

    Attributes:
        memory: of the head.
        notes: sentences of the gateways.
    """

    def __init__(self, gateways: int, hosts: Hosts | None = None, **settings: Any) -> None:
        self.plan = make_plan(gateways, **settings)
        self.memory = Memory.create(self.plan)
        self.memory.board.prepared[0] = 1
        self.notes: list[str] = []
        self.errors: list[BaseException] = []
        self._hosts = hosts
        self.doorbells = [Doorbell.create() for _ in range(len(self.plan.processes))]
        self._actor_bells = self.doorbells[self.plan.processes.slice_of(Role.ACTOR)]
        self._local = Player(self.memory, 1, self._actor_bells)
        self._balancer = GatewayBalancer(self.memory, self.notes.append) if gateways else None
        self._threads: list[threading.Thread] = []
        self.memory.weights.publish(0, lambda out: out.fill(1))
        self.memory.board.commits.publish(0)

    def start(self, gateway: int) -> None:
        """Start a gateway in a thread."""
        actor = 1 + gateway
        index = self.plan.processes.index_of(Role.ACTOR, actor)
        waiter = Waiter(self.memory.board, index, self.doorbells[index])

        def run() -> None:
            doorbells = Doorbells(tuple(doorbell.fd for doorbell in self.doorbells), self.plan.processes)
            try:
                RemoteLanes(self.memory, actor, waiter, doorbells, self._hosts).run()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001  (raised again where the test waits)
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def run(self, each: Callable[[int], None] = lambda round_: None) -> RemoteWorld:
        """Start all gateways, and play to the end; `each` is called with every version before it is committed."""
        try:
            for gateway in range(self.plan.elsewhere.actors):
                self.start(gateway)
            deadline = time.monotonic() + SECONDS
            while not self.memory.board.finished:
                self._turn(each)
                assert time.monotonic() < deadline, f"round {self.memory.board.committed} does not end: {self.notes}"
                if self.errors:
                    raise self.errors[0]
        finally:
            self.memory.board.stop[0] = Stop.ABANDON
            for doorbell in self.doorbells:
                doorbell.ring()
            for thread in self._threads:
                thread.join(SECONDS)
            if self._balancer is not None:
                self._balancer.measure()  # passes the last sentences on
        assert not any(thread.is_alive() for thread in self._threads), "a gateway does not end"
        return self

    def played(self) -> dict[str, bytes]:
        """All that the rings hold at the end of the run, up to the last whole tick."""
        schedule = self.memory.run_schedule
        last = schedule.rounds * schedule.round_ticks
        ticks = np.arange(max(0, last - schedule.window_ticks), last) % schedule.capacity
        found = {name: view[:, ticks].tobytes() for name, view in self.memory.ring.field.items()}
        read = self.memory.lane_snapshots.read
        return found | {f"snapshot {lane}": read(lane, schedule.rounds) for lane in range(schedule.lanes)}

    def _turn(self, each: Callable[[int], None]) -> None:
        """Let the local actor and the learner do what they can."""
        board, memory = self.memory.board, self.memory
        for actor in self._balancer.measure() if self._balancer is not None else ():
            self._actor_bells[actor].ring()
        self._local.turn()
        version = board.committed + 1
        if board.lane_finished.values.min() < version:
            self.doorbells[Role.LEARNER].wait(0.001)
            return
        each(version)
        schedule = memory.run_schedule
        ticks = np.arange(board.committed * schedule.round_ticks, version * schedule.round_ticks) % schedule.capacity
        digest = 0
        for name in sorted(memory.ring.field):
            digest = zlib.crc32(memory.ring.field[name][:, ticks].tobytes(), digest)
        memory.weights.publish(version, lambda out: out.fill(digest % 1009))
        board.commits.publish(version)
        for doorbell in self.doorbells:
            doorbell.ring()
