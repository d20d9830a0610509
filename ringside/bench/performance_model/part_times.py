"""Service times on this machine (shared/performance/service_times.py), each part in a process set up as in a run."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
from multiprocess.connection import Connection

from ringside.bench.harness.child_process import Child
from ringside.bench.harness.tables import CannotRun
from shared.machine.cores import NICENESS
from shared.memory.parts.mailbox import request_number
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter
from shared.performance.allocation import largest_batch
from shared.performance.service_times import ServiceTimes
from shared.performance.throughput_model import equal_shares

if TYPE_CHECKING:
    import torch

    from actors.lane import Lane
    from ringside.bench.network_parts.learner_alone import Solo

SEED = 1
WINDOW_STEPS = 20_000
"""Smallest replay buffer of a part that does not learn."""
FIRST_TICK = 8
"""First tick that is answered: the stacks of earlier ones reach back before the run."""
ROUND_UPDATES = 64
"""Updates in a round of a learner that is measured; commits are measured apart."""
SLICES = 2
"""Measurements of the learner alone, each followed by one beside an actor."""
ACTING_SLICES = 4
"""Measurements of an actor alone, each followed by one of all actors: the speed of a machine drifts within seconds."""
BESIDE = 1.5
"""Time for which the actor plays, divided by that of the measurement before."""
SMALLER = 4
"""Factor between the two batches whose times give the fixed part of an answer and that of a row."""


class Acting(NamedTuple):
    """An actor without inference."""

    step_seconds: float
    spread: float
    """Standard deviation of a step over its mean."""


class Playing(NamedTuple):
    """One actor alone, and one on each core at the same time."""

    alone: Acting
    together: Acting


class Answering(NamedTuple):
    """The inference server without actors."""

    fixed: float
    row: float
    parallel_share: float


class Learning(NamedTuple):
    """The learner without actors, seconds for one update."""

    busiest_thread: float
    all_threads: float
    ahead: float
    """The threads with the niceness of actors."""
    wall: float
    commit: float
    beside: float = 1.0
    """`wall` beside an actor that never waits, divided by that alone."""


@dataclass(frozen=True)
class Parts:
    """Measurements of all parts within one repeat."""

    playing: Playing
    answering: Answering
    learning: Learning
    wake: float
    cores: int
    on_gpu: bool

    def service_times(self) -> ServiceTimes:
        """Inputs of the model. Raises `CannotRun` for times that no machine has."""
        learning, (alone, together) = self.learning, self.playing
        threads = max(learning.busiest_thread, learning.all_threads / self.cores)
        shares = equal_shares(learning.all_threads / learning.wall, learning.ahead / learning.wall, 1, self.cores)
        no_waits = self.on_gpu or self.cores == 1  # no thread of the learner waits for another
        try:
            return ServiceTimes(
                step=alone.step_seconds,
                step_spread=alone.spread,
                answer=self.answering.fixed,
                answer_row=self.answering.row,
                wake=self.wake,
                update=learning.wall if self.on_gpu else learning.busiest_thread,
                update_cores=learning.all_threads,
                update_ahead=0.0 if self.on_gpu else learning.ahead,
                update_overhead=1.0 if no_waits else max(1.0, learning.wall / threads),
                contention=1.0 if no_waits else max(1.0, learning.beside / max(1.0, shares)),
                commit=learning.commit,
                crowding=min(1.0, alone.step_seconds / together.step_seconds),
                parallel_share=self.answering.parallel_share,
                processors=self.cores,
            )
        except ValueError as error:
            raise CannotRun(f"The parts were measured in a way that gives no service times: {error}") from error


# --- acting


class Actors:
    """Actors, one for each core, which play when they are told; each has an equal part of the envs."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children

    def measure(self, seconds: float) -> Playing:
        """Measure one of them while the others sleep, and all at the same time, in turn."""
        alone, together = list[Acting](), list[Acting]()
        for _ in range(ACTING_SLICES):
            alone += self._play(self._children[:1], seconds / (2 * ACTING_SLICES))
            together += self._play(self._children, seconds / (2 * ACTING_SLICES))
        return Playing(_typical(alone), _typical(together))

    @contextmanager
    def playing(self, seconds: float) -> Iterator[None]:
        """One of them plays for `seconds`; the block ends after that."""
        self._children[0].tell(str(seconds))
        yield
        self._children[0].answer(seconds)

    @staticmethod
    def _play(children: Sequence[Child], seconds: float) -> list[Acting]:
        """Measure some of them at the same time."""
        for child in children:
            child.tell(str(seconds))
        return [Acting(*child.answer(seconds)) for child in children]


def _typical(found: Sequence[Acting]) -> Acting:
    """Mean step, and the median of the spreads: a machine that stands still for a moment counts in the mean alone."""
    return Acting(
        statistics.fmean(each.step_seconds for each in found), statistics.median(each.spread for each in found)
    )


@contextmanager
def actors(plan: Plan, count: int) -> Iterator[Actors]:
    """Start `count` actors and wait until they are ready; they end with the block. Raises `CannotRun`."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(_act, (plan, count, index))) for index in range(count)]
        for child in children:
            child.answer()  # it is ready
        yield Actors(children)


def acting_plan(plan: Plan, count: int, index: int) -> Plan:
    """Plan of one of `count` actors as a run of its own: its part of the lanes, in rounds of as many ticks."""
    play = plan.config.play
    lanes = -(-plan.run_schedule.lanes // count)
    envs = lanes * play.lane_envs
    round_steps = plan.run_schedule.round_ticks * envs
    settings: dict[str, Any] = {
        "envs": envs,
        "actors": 1,
        "inference_batch": largest_batch(
            lanes, play.lane_envs, max(play.lane_envs, plan.config.machine.inference_batch)
        ),
        "device": "cpu",
        "precision": "fp32",  # nothing is computed
        "eval_every_steps": 0,
        "seed": SEED + index,
        "run_dir": Path(),
    }
    if not plan.method.on_policy:
        settings |= {"replay_size": max(WINDOW_STEPS, 2 * round_steps)}
    if plan.config.learn.schedule != "alternate" or plan.method.on_policy:
        settings |= {"round_steps": round_steps}
    return Plan(plan.config.with_settings(**settings), plan.actions)


def _act(connection: Connection, plan: Plan, count: int, index: int) -> None:
    """Play lanes as an actor does, with random answers at once, for the seconds that each message names."""
    from actors.lane import Lane
    from actors.make_env import make_env

    os.nice(NICENESS)
    own = acting_plan(plan, count, index)
    config, run_schedule = own.config, own.run_schedule
    memory = Memory.create(own)
    envs = [make_env(config.play, config.run.seed, env, training=True) for env in range(config.play.emulators)]
    size = run_schedule.lane_envs
    lanes = [
        Lane(memory.lane(each), own, envs[each * size : (each + 1) * size], actor=0)
        for each in range(len(envs) // size)
    ]
    for lane in lanes:
        lane.start()
    loop = _Loop(memory, lanes, own)
    loop.play(0.0)
    connection.send("ready")
    with suppress(EOFError, BrokenPipeError):  # the benchmark has ended
        while True:
            connection.send(tuple(loop.play(float(connection.recv()))))


class _Loop:
    """The loop of an actor, with a stub of the inference server in the same process."""

    def __init__(self, memory: Memory, lanes: Sequence[Lane], plan: Plan) -> None:
        self._memory, self._lanes, self._plan = memory, lanes, plan
        self._waiter = Waiter(memory.board, plan.processes.index_of(plan.player), Doorbell.create())
        self._inference = Doorbell.create()
        self._random = np.random.default_rng(SEED)
        self._ticks = 0
        shape = len(lanes), plan.run_schedule.lane_envs
        self._declared = {
            name: np.zeros((*shape, *more), dtype) for name, dtype, more in plan.run_schedule.method.slot_fields
        }

    def play(self, seconds: float) -> Acting:
        """Play whole ticks of all lanes, at least one, for `seconds`."""
        size, took = self._plan.run_schedule.lane_envs, []
        began = time.perf_counter()
        while True:
            self._answer_all()
            for lane in self._lanes:
                if not lane.ready:
                    raise RuntimeError(f"The lane did not take the answer to tick {lane.tick}.")
                before = time.perf_counter()
                lane.step()
                took.append(time.perf_counter() - before)
                if lane.cell_asks:
                    self._inference.ring()
                self._ticks += 1
                self._waiter.note_progress(self._ticks)
                self._waiter.heartbeat()
            if (all_seconds := time.perf_counter() - began) >= seconds:
                break
        steps = np.array(took) / size
        return Acting(all_seconds / (len(took) * size), float(steps.std() / steps.mean() * size**0.5))

    def _answer_all(self) -> None:
        mailbox, lanes = self._memory.mailbox, np.arange(len(self._lanes))
        actions = self._random.integers(
            self._plan.actions, size=(len(lanes), self._plan.run_schedule.lane_envs), dtype=np.uint8
        )
        mailbox.answer(lanes, mailbox.request.values[lanes].copy(), actions, self._declared)


# --- answering


def answering(plan: Plan, seconds: float) -> Answering:
    """Measure the inference server for `seconds`. Raises `CannotRun`."""
    with Child(_answer, (plan, seconds)) as child:
        return Answering(*child.answer(3 * seconds))


def _answer(connection: Connection, plan: Plan, seconds: float) -> None:
    """Answer full batches, large and small ones; then the same forward pass on one thread and on two."""
    import torch

    from learner.engine.device import prepare_torch
    from ringside.bench.harness.interleaved import seconds_per_call

    machine, size = plan.config.machine, plan.run_schedule.lane_envs
    device = torch.device(machine.device)
    prepare_torch(device, machine.precision, machine.inference_threads, deterministic=machine.is_deterministic)
    large = machine.inference_batch
    small = largest_batch(large // size, size, max(size, large // SMALLER))
    # The fixed part is a small difference of two times, so they are measured in turn.
    batches = sorted({small, large})
    servers = [_BusyServer(plan, device, batch) for batch in batches]
    took = dict(zip(batches, seconds_per_call([each.answer for each in servers], seconds / 2), strict=True))
    for server in servers:
        server.close()
    row = max(0.0, (took[large] - took[small]) / (large - small)) if large > small else took[large] / large
    share = 0.0 if device.type != "cpu" else _parallel_share(plan, device, seconds / 2)
    connection.send((max(0.0, took[large] - row * large), row, share))


class _BusyServer:
    """An inference server whose next batch has always asked."""

    def __init__(self, plan: Plan, device: torch.device, batch: int) -> None:
        from learner.inference import Server
        from learner.losses.method import make_method
        from learner.networks.policy import Policy
        from ringside.bench.system_parts.memory_paths import fill

        settings: dict[str, Any] = {"inference_batch": batch, "eval_every_steps": 0}
        if not plan.method.on_policy:
            settings |= {"replay_size": max(WINDOW_STEPS, 2 * plan.run_schedule.round_steps)}
        own = Plan(plan.config.with_settings(**settings), plan.actions)
        self._memory = Memory.create(own)
        fill(self._memory.ring, own.actions)
        random = np.random.default_rng(SEED)
        self._memory.weights.publish(1, lambda out: out.__setitem__(slice(None), random.normal(0.0, 0.02, out.shape)))
        self._memory.board.commits.publish(0)
        method = make_method(own.network, own.config.algorithm, device, own.method)
        policy = Policy(own.network, device, own.config.machine.precision, batch, explore_seed=SEED, method=method)
        policy.rehearse()
        self._server = Server(self._memory, policy)
        self._batch, lanes = batch, batch // own.run_schedule.lane_envs
        self._groups = [np.arange(first, first + lanes) for first in range(0, own.run_schedule.lanes, lanes)]
        self._ticks = range(FIRST_TICK, max(FIRST_TICK + 1, own.run_schedule.round_ticks))
        self._answered = 0

    def answer(self) -> None:
        """One batch: look for requests, gather, compute, reply."""
        tick = self._ticks[self._answered // len(self._groups) % len(self._ticks)]
        group = self._groups[self._answered % len(self._groups)]
        numbers = np.full(len(group), request_number(self._answered, tick))
        self._memory.mailbox.request.publish(group, numbers)
        for lanes, asked in self._server.due():
            self._server.answer(lanes, asked)
        self._answered += 1

    def close(self) -> None:
        """Give the memory back. Raises `CannotRun` if rows were not answered."""
        rows = self._answered * self._batch
        if self._server.served != rows:
            raise CannotRun(f"The server answered {self._server.served:,} rows instead of {rows:,}.")
        self._memory.arena.close()


def _parallel_share(plan: Plan, device: torch.device, seconds: float) -> float:
    """Share of a forward pass of an update's batch that two threads divide; 0 on a single core."""
    import torch

    from learner.engine.initialization import initial_parameters
    from learner.losses.method import make_method
    from learner.networks.policy import Policy
    from ringside.bench.harness.interleaved import seconds_per_call
    from shared.machine.facts import usable_cores

    if usable_cores() == 1:
        return 0.0
    batch, config = plan.config.learn.batch_size, plan.config
    method = make_method(plan.network, config.algorithm, device, plan.method)
    policy = Policy(plan.network, device, config.machine.precision, batch, method=method)
    policy.load(initial_parameters(plan.network, SEED))
    stacks = np.random.default_rng(SEED).integers(0, 256, (batch, *plan.network.frames.observation), np.uint8)

    def with_threads(threads: int) -> None:
        torch.set_num_threads(threads)
        policy.values(stacks)

    one, two = seconds_per_call([lambda: with_threads(1), lambda: with_threads(2)], seconds / 2)
    return min(1.0, max(0.0, 2 * (1 - two / one)))


# --- learning


def learning(plan: Plan, seconds: float, pool: Actors) -> Learning:
    """Measure the learner with one thread in each team for `seconds`, alone and beside an actor in turn.

    Raises `CannotRun` and `WrongResult`.
    """
    each, alone, beside = str(seconds / (2 * SLICES)), [], []
    with Child(_learn, (plan,)) as child:
        child.answer()  # it is ready
        for _ in range(SLICES):
            began = time.perf_counter()
            alone.append(Learning(*child.ask(each)))
            with pool.playing(BESIDE * (time.perf_counter() - began)):
                beside.append(Learning(*child.ask(each)).wall)
    means = Learning(*map(statistics.fmean, zip(*alone, strict=True)))
    return means._replace(beside=statistics.fmean(beside) / means.wall)


def _learn(connection: Connection, plan: Plan) -> None:
    """Do updates for the seconds that each message names."""
    from ringside.bench.network_parts.learner_alone import Solo

    settings: dict[str, Any] = {"learner_threads": 1}
    if not plan.method.on_policy:  # whose rounds are part of what is learned
        least = -(-ROUND_UPDATES * plan.config.learn.train_every // plan.run_schedule.envs) * plan.run_schedule.envs
        settings |= {"round_steps": min(plan.config.learn.round_steps, least)}
    solo = Solo(Plan(plan.config.with_settings(**settings), plan.actions))
    connection.send("ready")
    with suppress(EOFError, BrokenPipeError):  # the benchmark has ended
        while True:
            connection.send(tuple(_updates(solo, float(connection.recv()))))


def _updates(solo: Solo, seconds: float) -> Learning:
    """Times of updates in whole rounds, at least one, for `seconds`."""
    process, before, began = psutil.Process(), solo.done, time.perf_counter()
    cpu = {each.id: each.user_time + each.system_time for each in process.threads()}
    solo.updates_per_second(seconds)
    took, after = time.perf_counter() - began, solo.done
    spent = {each.id: each.user_time + each.system_time - cpu.get(each.id, 0.0) for each in process.threads()}
    niceness = {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in spent}
    updates, commits = after.updates - before.updates, after.commit_seconds - before.commit_seconds
    return Learning(
        busiest_thread=max(spent.values()) / updates,
        all_threads=sum(spent.values()) / updates,
        ahead=sum(spent[thread] for thread in spent if niceness[thread] > niceness[process.pid]) / updates,
        wall=(took - commits) / updates,
        commit=commits / (after.rounds - before.rounds),
    )
