"""The mailbox between two real processes: a request and its reply, and the cost of the doorbells alone.

The other process is a stub of inference. It waits as every process of a run does, and its answer is a function of the
tick, which is checked. For comparison, the same two processes only ring each other's doorbell. The kernel chooses their
cores, as in a run on few cores.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from multiprocess import Pipe, reduction
from multiprocess.connection import Connection

from ringside.bench.harness.interleaved import seconds_per_call
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.limits import Options
from ringside.supervisor.spawning import ChildProcess
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.machine.subprocesses import REAP_SECONDS
from shared.memory.parts.mailbox import Mailbox
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import POLL_SECONDS, Doorbell, Waiter
from shared.process.signals import enable_stack_dumps

ACTIONS = 18
START_SECONDS = 60.0
TRIPS = 500
"""Consecutive round trips of one kind; a message through a pipe selects the kind and takes as long as three trips."""


def measure(options: Options, report: Report) -> None:
    """The part `mailbox` of `launch.py bench limits`."""
    with report.measuring("mailbox"), _asker() as asker:
        times = [seconds_per_call((asker.doorbells, asker.mailbox), options.seconds) for _ in range(options.repeats)]
        doorbells, mailbox = np.array(times).T / TRIPS
        report.add("two bells", "trips/s", (1 / doorbells).tolist(), note=f"{1e6 * np.median(doorbells):.1f} us")
        note = f"{1e6 * np.median(mailbox):.1f} us"
        report.add("request and reply", "trips/s", (1 / mailbox).tolist(), limit="two bells", note=note)


class Asker:
    """The actor's side of the mailbox."""

    def __init__(self, memory: Memory, doorbells: tuple[Doorbell, Doorbell], pipe: Connection) -> None:
        self._memory, self._pipe = memory, pipe
        self._mine, self._other = doorbells
        self._waiter = Waiter(memory.board, memory.plan.processes.index_of(Role.ACTOR), self._mine)
        self._tick = 0

    def await_message(self) -> None:
        """Wait for a message of the other side. Raises `CannotRun` if none comes."""
        try:
            received = self._pipe.poll(START_SECONDS) and self._pipe.recv()
        except (EOFError, OSError):
            received = False
        if not received:
            raise CannotRun("The process at the other end of the mailbox ended, or does not answer.")

    def _begin(self, kind: str) -> None:
        """Make the other side serve `kind`. Clears a pending ring of the doorbell, which would merge with the next."""
        self._pipe.send(kind)
        self.await_message()
        self._mine.wait(0.0)

    def doorbells(self) -> None:
        """Make `TRIPS` round trips with doorbells alone."""
        self._begin("doorbells")
        for _ in range(TRIPS):
            self._other.ring()
            self._mine.wait(POLL_SECONDS)

    def mailbox(self) -> None:
        """Make `TRIPS` requests and await their replies. Raises `WrongResult` for a reply to another tick."""
        lane, wait = self._memory.lane(0), self._waiter.wait
        first, self._tick = self._tick, self._tick + TRIPS
        self._begin("mailbox")
        got = []
        for tick in range(first, self._tick):
            lane.ask(0, tick)
            self._other.ring()
            wait(lambda: lane.answered)
            got.append(int(lane.actions[0]))
        if got != [_reply(tick) for tick in range(first, self._tick)]:
            raise WrongResult("A reply held the actions of another request.")


def _reply(tick: int) -> int:
    return tick * tick % ACTIONS


@contextmanager
def _asker() -> Iterator[Asker]:
    """Start both sides and wait until they are ready; the other process ends with the block."""
    sizes = {"envs": 2, "actors": 1, "round_steps": 100, "replay_size": 100, "network": "small"}
    config = Config().with_settings(**sizes, device="cpu", run_dir=Path())
    memory = Memory.create(Plan(resolve(config), ACTIONS))
    doorbells = Doorbell.create(), Doorbell.create()
    pipe, theirs = Pipe()
    child = ChildProcess(target=_serve, args=(theirs, memory.plan), daemon=True)
    child.start()
    theirs.close()
    asker = Asker(memory, doorbells, pipe)
    try:
        for fd in (memory.arena.fd, doorbells[1].fd, doorbells[0].fd):
            reduction.send_handle(pipe, fd, child.pid)
        asker.await_message()
        yield asker
    finally:
        child.kill()
        child.join(REAP_SECONDS)
        pipe.close()
        for doorbell in doorbells:
            os.close(doorbell.fd)
        memory.arena.close()


def _serve(pipe: Connection, plan: Plan) -> None:
    """Inference side: serves `TRIPS` round trips of each requested kind until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    enable_stack_dumps()
    memory = Memory.attach(reduction.recv_handle(pipe), plan)
    mine, other = (Doorbell(reduction.recv_handle(pipe)) for _ in range(2))
    waiter, mailbox = Waiter(memory.board, Role.INFERENCE, mine), memory.mailbox
    lanes = np.zeros(1, np.int64)
    pipe.send("ready")
    while True:
        kind = pipe.recv()
        mine.wait(0.0)  # as in `Asker._begin`
        pipe.send(kind)
        for _ in range(TRIPS):
            if kind == "doorbells":
                mine.wait(POLL_SECONDS)
            else:
                waiter.wait(lambda: bool(mailbox.request.values[0] != mailbox.reply.values[0]))
                numbers = mailbox.request.values[:1].copy()
                actions = np.full(
                    (1, memory.run_schedule.lane_envs), _reply(int(Mailbox.tick_of(numbers)[0])), np.uint8
                )
                mailbox.answer(lanes, numbers, actions)
            other.ring()
