"""Waiting: what wakes, what is counted, and that a run which ends wakes everybody."""

import mmap
import os
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shared.memory import wait
from shared.memory.board import Phase
from shared.memory.wait import Doorbell, Stopped, Waiter

ME = 1
SECOND = 1_000_000_000


class Ears:
    """A doorbell that is heard after so many looks, in half a second each; `then` is what the others do meanwhile."""

    def __init__(self, clock: SimpleNamespace, then: Any = lambda look: None) -> None:
        self._clock, self._then, self.looks = clock, then, 0

    def wait(self, seconds: float) -> None:
        assert seconds == wait.POLL_SECONDS, "every wait is bounded"
        self._clock.now += int(seconds * SECOND)
        self.looks += 1
        self._then(self.looks)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Nanoseconds that pass only where a process waits or works."""
    made = SimpleNamespace(now=5 * SECOND)
    told = dict.fromkeys(("monotonic_ns", "process_time_ns"), lambda: made.now)
    monkeypatch.setattr(wait, "time", SimpleNamespace(**told))
    return made


@pytest.fixture
def board() -> Any:
    """The words that a waiter writes, of three processes."""
    names = ("busy_ns", "waited_ns", "cpu_ns", "heartbeat", "private_bytes", "device_bytes", "furthest")
    made = SimpleNamespace(**{name: np.zeros(3, np.int64) for name in names}, stopping=False)
    made.phase = np.full(3, Phase.WORKING)
    made.furthest[:] = -1
    return made


def test_work_and_waiting_are_counted_apart(board: Any, clock: SimpleNamespace) -> None:
    ears = Ears(clock)
    waiter = Waiter(board, ME, ears)
    clock.now += 2 * SECOND
    assert waiter.wait(lambda: ears.looks == 3) == 3 * SECOND // 2
    assert (board.busy_ns.tolist(), board.waited_ns.tolist()) == ([0, 2 * SECOND, 0], [0, 3 * SECOND // 2, 0])
    assert board.heartbeat[ME] == clock.now, "a wait sends heartbeats"
    clock.now += SECOND
    waiter.heartbeat()
    assert board.busy_ns[ME] == 3 * SECOND
    assert board.private_bytes[ME] > 1_000_000


def test_a_true_condition_needs_no_wait(board: Any, clock: SimpleNamespace) -> None:
    ears = Ears(clock)
    assert Waiter(board, ME, ears).wait(lambda: True) == 0
    assert (ears.looks, board.phase[ME]) == (0, Phase.WORKING)


def test_a_wait_shows_its_phase_and_restores_the_former_one(board: Any, clock: SimpleNamespace) -> None:
    board.phase[ME] = Phase.REPLAYING
    seen = list[int]()
    ears = Ears(clock, lambda look: seen.append(board.phase[ME]))
    Waiter(board, ME, ears).wait(lambda: ears.looks == 1)
    assert seen == [Phase.WAITING]
    assert board.phase.tolist() == [Phase.WORKING, Phase.REPLAYING, Phase.WORKING]


def test_a_run_that_ends_ends_every_wait_and_every_piece_of_work(board: Any, clock: SimpleNamespace) -> None:
    ears = Ears(clock, lambda look: setattr(board, "stopping", look == 2))
    waiter = Waiter(board, ME, ears)
    with pytest.raises(Stopped):
        waiter.wait(lambda: False)
    assert ears.looks == 2
    with pytest.raises(Stopped):
        waiter.heartbeat()


def test_the_furthest_point_never_goes_back(board: Any, clock: SimpleNamespace) -> None:
    waiter = Waiter(board, ME, Ears(clock))
    for point in (3, 7, 5):
        waiter.note_progress(point)
    assert board.furthest.tolist() == [-1, 7, -1]


def test_time_on_a_processor_is_added_to_that_of_former_lives(board: Any, clock: SimpleNamespace) -> None:
    board.cpu_ns[ME] = 100
    waiter = Waiter(board, ME, Ears(clock))
    asked = list[int]()
    waiter.device_bytes = lambda: asked.append(clock.now) or 12_345
    clock.now += SECOND
    waiter.heartbeat()
    assert (board.cpu_ns[ME], board.device_bytes[ME]) == (100 + SECOND, 12_345)
    asked.clear()
    for _ in range(1_000):
        clock.now += wait.REPORT_NS // 100
        waiter.heartbeat()
    assert len(asked) == 10, "no system call at every tick"


def test_memory_that_is_not_shared_is_told() -> None:
    before = wait.private_bytes()
    ballast = mmap.mmap(-1, 200_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # not from a heap that has room
    ballast.write(bytes([1]) * len(ballast))
    assert wait.private_bytes() - before > 0.9 * len(ballast)


@pytest.mark.timeout(30)  # a wait for a ring that is lost would end, too
def test_a_ring_wakes_once_and_a_ring_too_early_is_kept() -> None:
    doorbell = Doorbell.create()
    try:
        doorbell.ring()
        doorbell.ring()
        doorbell.wait(60.0)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(doorbell.fd)
        threading.Timer(0.05, doorbell.ring).start()
        doorbell.wait(60.0)
        doorbell.wait(0.0)
    finally:
        os.close(doorbell.fd)
