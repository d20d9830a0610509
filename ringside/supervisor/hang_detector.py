"""Which processes hang: what the supervisor makes of a process that gives no sign of life.

A sign of life is a heartbeat that has changed since the last look; what clock it was taken from does not matter.
Silence is not counted by a clock either, but look by look, in time that the process could have used:

| the process | counts | because |
|---|---|---|
| sleeps | in full | every wait gives signs of life (shared/memory/wait.py), so this one has no bound |
| runs | as much processor time as it got | an overloaded machine makes slow, not hung; an endless loop gets its time |
| is stopped (SIGSTOP) | in full, and to a short bound | it does nothing, whatever it was about to do |
| waits for a disk or a driver, or a debugger holds it | to a long bound | that is not in its hands |

A look that comes late counts as one second at most: then the supervisor itself was stopped (Ctrl-Z), or the machine
was suspended, and so was everybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shared.machine.proc_files import stat_fields
from shared.memory.board import Phase

STOPPED_SECONDS = 3.0
"""How long a process may be stopped."""
BLOCKED_SECONDS = 300.0
"""How long it may wait for what does not lie in its hands."""
MULTIPLE = 5.0
"""A process at work hangs when it is silent for so many times the longest silence that ended with a sign of life."""
FLOOR_SECONDS, CEILING_SECONDS = 5.0, 180.0
"""Least and greatest of these bounds. The greatest also holds while a process starts, or does again what a former life
did: libraries are loaded, files are read."""
KNOWN_LOOKS = 40
"""Signs of life at work until the pace of a role counts as known; the ceiling is its bound until then. Waiting tells
nothing of it: a learner that waits while the first rounds are only played may need seconds for an update."""
LATE_SECONDS = 1.0
"""What a look counts at most; a silence that is shorter needs no second glance."""


class ProcessState(NamedTuple):
    """What the kernel tells of a process at one moment."""

    state: str
    """R: one of its threads has a processor or wants one. Else D, t (traced), T (stopped) or S (sleeps)."""
    cpu_seconds: float
    """Processor time of all its threads so far."""


def process_state(process: int, root: Path = Path("/")) -> ProcessState | None:
    """Look at a process by its id; None when it is gone."""
    states, ticks = "", 0
    with suppress(OSError):
        for thread in (root / "proc" / str(process) / "task").iterdir():
            if fields := stat_fields(thread / "stat"):  # else it has just ended
                states += fields[0]
                ticks += int(fields[11]) + int(fields[12])  # utime and stime, fields 14 and 15
    state = next((state for state in "RDtT" if state in states), "S")
    return ProcessState(state, ticks / os.sysconf("SC_CLK_TCK")) if states else None


class HangDetector:
    """The signs of life of one role, through all its lives."""

    def __init__(self) -> None:
        self._longest = 0.0  # silence that ended with a sign of life, at work
        self._signs = 0
        self.begin()

    def begin(self) -> None:
        """A new life begins. The pace of the former ones is remembered."""
        self._heartbeat: int | None = None
        self._worked = False  # since its newest sign of life
        self._reset()

    def look(self, heartbeat: int, phase: Phase, seconds: float, see: Callable[[], ProcessState | None]) -> str | None:
        """Look at a process again, and return in words why it hangs, if it does.

        Args:
            heartbeat: the newest of the process.
            phase: what it says that it does.
            seconds: since the last look.
            see: looks at its threads; asked only when it is silent.
        """
        seconds = min(seconds, LATE_SECONDS)
        if heartbeat != self._heartbeat:
            if self._worked:
                self._longest = max(self._longest, self._silent)
                self._signs += 1
            self._heartbeat, self._worked = heartbeat, phase == Phase.WORKING
            self._reset()
            return None
        self._worked = self._worked or phase == Phase.WORKING
        if self._silent + seconds < LATE_SECONDS:
            self._silent += seconds
            return None
        seen = see()
        if seen is None:
            return None
        self._count(seen, seconds)
        if self._stopped > STOPPED_SECONDS:
            return f"has been stopped for {self._stopped:.0f} s (SIGSTOP)"
        if self._blocked > BLOCKED_SECONDS:
            return f"has waited {self._blocked:.0f} s for a disk or a driver (state {seen.state})"
        if self._silent > self.bound(phase):
            # Were it merely slower than ever, its next life has more time.
            self._longest = max(self._longest, self._silent)
            return f"gave no sign of life for {self._silent:.0f} s, not counting time without a processor"
        return None

    def bound(self, phase: Phase) -> float:
        """Seconds of silence from which on a process hangs, be it neither stopped nor blocked."""
        if phase in (Phase.STARTING, Phase.REPLAYING) or self._signs < KNOWN_LOOKS:
            return CEILING_SECONDS
        return min(max(MULTIPLE * self._longest, FLOOR_SECONDS), CEILING_SECONDS)

    def _reset(self) -> None:
        """Silence begins anew."""
        self._silent = self._stopped = self._blocked = 0.0
        self._cpu_seconds: float | None = None

    def _count(self, seen: ProcessState, seconds: float) -> None:
        """Add the time since the last look to that silence to which it belongs."""
        used = 0.0 if self._cpu_seconds is None else seen.cpu_seconds - self._cpu_seconds
        self._cpu_seconds = seen.cpu_seconds
        self._stopped = self._stopped + seconds if seen.state == "T" else 0.0
        if seen.state == "R":
            self._silent += min(seconds, used)
        elif seen.state in "Dt":
            self._blocked += seconds
        elif seen.state == "S":
            self._silent += seconds
