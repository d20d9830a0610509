"""Every wait of the system: bounded, and it looks whether the run still goes on.

A bell (an event descriptor) only wakes; the truth is always a number in memory, which the waiter reads again after
every ring and every time-out. So a ring that comes too early or twice is harmless, and one that is lost costs at most
`LOOK_SECONDS`. Whoever is waited for may be killed: the supervisor brings it back, or sets the stop word, or dies and
takes its children along (parent-death signal).
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import time
from collections.abc import Callable

from shared.memory.board import Board, Phase

LOOK_SECONDS = 0.5
TELL_NS = 100_000_000
"""Between two times that a process tells its CPU time and memory: system calls (0.2 and 5 us) and,
on a GPU, PyTorch's books (some 100 us), so not at every tick."""


class Stopped(Exception):
    """The supervisor asked everybody to leave."""


class Bell:
    """An event descriptor that wakes whoever waits on it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    @classmethod
    def create(cls) -> Bell:
        """A new bell."""
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self) -> None:
        """Wake the waiter; never blocks."""
        os.eventfd_write(self.fd, 1)

    def wait(self, seconds: float) -> None:
        """Sleep until a ring, at most `seconds`."""
        if self._poll.poll(seconds * 1000):
            with contextlib.suppress(BlockingIOError):  # a former life, not yet reaped, took the ring
                os.eventfd_read(self.fd)


class Waiter:
    """How one process waits and gives signs of life.

    Attributes:
        device_bytes: what tells the memory of a GPU that this process holds; None: it computes on none.
    """

    def __init__(self, board: Board, process: int, bell: Bell) -> None:
        self.board = board
        self.process = process
        self.bell = bell
        self.device_bytes: Callable[[], int] | None = None
        self._mark = time.monotonic_ns()
        self._told = self._mark
        # From here on, like busy time, and on top of what former incarnations used.
        self._cpu_ns_before = int(board.cpu_ns[process]) - time.process_time_ns()

    def beat(self) -> None:
        """A sign of life from the middle of work. Raises `Stopped` when the run is to end."""
        now = time.monotonic_ns()
        self.board.busy_ns[self.process] += now - self._mark
        self._live(now)
        if self.board.stopping:
            raise Stopped

    def wait(self, ready: Callable[[], bool]) -> int:
        """Wait until `ready()`; return the nanoseconds it took. Raises `Stopped` when the run is to end."""
        self.beat()
        begun = self._mark
        if ready():
            return 0
        phase = self.board.phase[self.process]
        self.board.phase[self.process] = Phase.WAITING
        while not ready():
            self.bell.wait(LOOK_SECONDS)
            now = time.monotonic_ns()
            self.board.waited_ns[self.process] += now - self._mark
            self._live(now)
            if self.board.stopping:
                raise Stopped
        self.board.phase[self.process] = phase
        return self._mark - begun

    def _live(self, now: int) -> None:
        """What counting up to `now` (ns) leaves on the board; the heartbeat says up to when it was counted."""
        self._mark = now
        self.board.heartbeat[self.process] = now
        if now - self._told >= TELL_NS:
            self._told = now
            self.board.cpu_ns[self.process] = self._cpu_ns_before + time.process_time_ns()
            self.board.private_bytes[self.process] = _private_bytes()
            if self.device_bytes is not None:
                self.board.device_bytes[self.process] = self.device_bytes()

    def furthest(self, point: int) -> None:
        """Note the furthest point of work; deaths beyond it count as progress."""
        if point > self.board.furthest[self.process]:
            self.board.furthest[self.process] = point


def _private_bytes() -> int:
    """Resident memory that this process has for itself: what it wrote, libraries' relocated pages included.

    The kernel keeps these counts, so asking costs the same however large the shared region is. Memory of a GPU is not
    among them.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:  # no /proc, or no descriptor left: it is only told
        return 0
    return (resident - shared) * resource.getpagesize()
