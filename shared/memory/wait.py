"""Bounded waits, which end when the run stops, and the doorbells that wake a waiting process.

A doorbell (an event descriptor) only wakes; the truth is always a number in memory. The waiter reads it again after
every wake-up and every time-out. So an early or repeated wake-up is harmless, and a lost one costs at most
`POLL_SECONDS`. If the process that should ring is killed, the supervisor restarts it, sets the stop word, or dies
itself, which ends its children (parent-death signal).
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.memory.board import Board, Phase

POLL_SECONDS = 0.5
"""Longest sleep of a wait."""
REPORT_NS = 100_000_000
"""Between two reports of a process's CPU time and memory. They take system calls (0.2 and 5 us) and, on a GPU,
PyTorch's books (some 100 us): too much for every tick."""


class Stopped(Exception):
    """The supervisor asked all processes to leave."""


class Doorbell:
    """An event descriptor that wakes the process that waits on it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    @classmethod
    def create(cls) -> Doorbell:
        """A new doorbell."""
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self) -> None:
        """Wake the waiter; never blocks."""
        os.eventfd_write(self.fd, 1)

    def wait(self, seconds: float) -> None:
        """Sleep until a ring, at most `seconds`."""
        if self._poll.poll(seconds * 1000):
            with contextlib.suppress(BlockingIOError):  # a former incarnation, not yet reaped, took the ring
                os.eventfd_read(self.fd)


class Waiter:
    """Waits and heartbeats of one process.

    Attributes:
        device_bytes: returns the memory of a GPU that this process holds; None: it computes on none.
    """

    def __init__(self, board: Board, process: int, doorbell: Doorbell) -> None:
        self.board = board
        self.process = process
        self.doorbell = doorbell
        self.device_bytes: Callable[[], int] | None = None
        self._mark = time.monotonic_ns()
        self._reported_at = self._mark
        # From here on, like busy time, and on top of what former incarnations used.
        self._cpu_ns_before = int(board.cpu_ns[process]) - time.process_time_ns()

    def heartbeat(self) -> None:
        """Record a heartbeat during work. Raises `Stopped` when the run is to end."""
        self._record(self.board.busy_ns)

    def wait(self, ready: Callable[[], bool], sleep: Callable[[float], object] | None = None) -> int:
        """Wait until `ready()`; return the nanoseconds it took. Raises `Stopped` when the run is to end.

        Args:
            sleep: sleeps for at most so many seconds, less if what is awaited may be there; default: until a ring.
        """
        sleep = sleep or self.doorbell.wait
        self.heartbeat()
        began = self._mark
        if ready():
            return 0
        phase = self.board.phase[self.process]
        self.board.phase[self.process] = Phase.WAITING
        while not ready():
            sleep(POLL_SECONDS)
            self._record(self.board.waited_ns)
        self.board.phase[self.process] = phase
        return self._mark - began

    def _record(self, spent_ns: NDArray[np.int64]) -> None:
        """Write a heartbeat, the time since the last one, and now and then CPU time and memory. Raises `Stopped`."""
        now = time.monotonic_ns()
        spent_ns[self.process] += now - self._mark
        self._mark = now
        self.board.heartbeat[self.process] = now
        if now - self._reported_at >= REPORT_NS:
            self._reported_at = now
            self.board.cpu_ns[self.process] = self._cpu_ns_before + time.process_time_ns()
            self.board.private_bytes[self.process] = private_bytes()
            if self.device_bytes is not None:
                self.board.device_bytes[self.process] = self.device_bytes()
        if self.board.stopping:
            raise Stopped

    def note_progress(self, point: int) -> None:
        """Record the furthest point of work; a process that dies beyond its last point has made progress."""
        if point > self.board.furthest[self.process]:
            self.board.furthest[self.process] = point


inherited_bytes = 0
"""Private memory of the fork server, whose pages its processes share."""


def private_bytes() -> int:
    """Resident memory that is not shared: pages that the process wrote, libraries' relocated pages included.

    Of a forked process, the part that it has taken since. The kernel keeps these counts, so the cost does not depend on
    the size of the shared region. Memory of a GPU is not included.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:  # no /proc, or no descriptor left: it is only a report
        return 0
    return (resident - shared) * resource.getpagesize() - inherited_bytes
