"""Detection of processes that hang, or that take too long to leave.

A process is alive when its heartbeat has changed since the last poll; the clock behind it does not matter. Silence is
not measured by a clock either, but poll by poll, in time that the process could have used:

| the process | counts | because |
|---|---|---|
| sleeps | in full | every wait sends heartbeats (shared/memory/wait.py), so this wait has no bound |
| runs | its CPU time | on an overloaded machine it is slow and does not hang; an endless loop gets CPU time |
| is stopped (SIGSTOP) | in full, with a short bound | it does nothing |
| waits for a disk or a driver, or is traced by a debugger | with a long bound | it cannot go on by itself |

A late poll counts as one second at most. The supervisor itself was stopped then (Ctrl-Z), or the machine was suspended,
and so were all processes.
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
"""Longest stop of a process."""
BLOCKED_SECONDS = 300.0
"""Longest wait of a process for a disk, a driver or a debugger."""
MULTIPLE = 5.0
"""A process at work hangs when its silence exceeds this multiple of the longest silence that ended by itself."""
FLOOR_SECONDS, CEILING_SECONDS = 5.0, 180.0
"""Least and greatest of these bounds. The greatest also holds while a process starts or replays: it loads libraries and
reads files."""
KNOWN_HEARTBEATS = 40
"""Heartbeats at work after which the pace of a role is known; until then its bound is the ceiling. Waits do not
count: a learner that waits while the first rounds are only played may need seconds for an update."""
LATE_SECONDS = 1.0
"""Most time that a poll counts; a shorter silence is not examined."""


class ProcessState(NamedTuple):
    """State of a process at one moment, from the kernel."""

    state: str
    """R: one of its threads has a processor or wants one. Else D, t (traced), T (stopped) or S (sleeps)."""
    cpu_seconds: float
    """Processor time of all its threads so far."""


def process_state(process: int) -> ProcessState | None:
    """Return the state of a process by its id; None when it is gone."""
    states, ticks = "", 0
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            if fields := stat_fields(thread / "stat"):  # else it has just ended
                states += fields[0]
                ticks += int(fields[11]) + int(fields[12])  # utime and stime, fields 14 and 15
    state = next((state for state in "RDtT" if state in states), "S")
    return ProcessState(state, ticks / os.sysconf("SC_CLK_TCK")) if states else None


class HangDetector:
    """Heartbeats of one role, over all its incarnations."""

    def __init__(self) -> None:
        self._longest = 0.0  # silence that ended with a heartbeat, at work
        self._heartbeats = 0
        self.restart()

    def restart(self) -> None:
        """Begin with a new incarnation. The pace of the former ones is kept."""
        self._heartbeat: int | None = None
        self._worked = False  # since its newest heartbeat
        self._reset()

    def check(
        self, heartbeat: int, phase: Phase, seconds: float, read_state: Callable[[], ProcessState | None]
    ) -> str | None:
        """Return the reason in words why the process hangs; None: it does not.

        Args:
            heartbeat: the newest of the process.
            phase: its phase, from the board.
            seconds: since the last check.
            read_state: reads the state of its threads; called only when it is silent.
        """
        seconds = min(seconds, LATE_SECONDS)
        if heartbeat != self._heartbeat:
            if self._worked:
                self._longest = max(self._longest, self._silent)
                self._heartbeats += 1
            self._heartbeat, self._worked = heartbeat, phase == Phase.WORKING
            self._reset()
            return None
        self._worked = self._worked or phase == Phase.WORKING
        if self._silent + seconds < LATE_SECONDS:
            self._silent += seconds
            return None
        seen = read_state()
        if seen is None:
            return None
        self._count(seen, seconds)
        if self._stopped > STOPPED_SECONDS:
            return f"has been stopped for {self._stopped:.0f} s (SIGSTOP)"
        if self._blocked > BLOCKED_SECONDS:
            return f"has waited {self._blocked:.0f} s for a disk or a driver (state {seen.state})"
        if self._silent > self.bound(phase):
            # If it is only slower than ever, its next incarnation has more time.
            self._longest = max(self._longest, self._silent)
            return f"sent no heartbeat for {self._silent:.0f} s, not counting time without a processor"
        return None

    def bound(self, phase: Phase) -> float:
        """Seconds of silence after which a process hangs, unless it is stopped or blocked."""
        if phase == Phase.DONE:  # it only leaves, unless an env does not close
            return FLOOR_SECONDS
        if phase in (Phase.STARTING, Phase.REPLAYING) or self._heartbeats < KNOWN_HEARTBEATS:
            return CEILING_SECONDS
        return min(max(MULTIPLE * self._longest, FLOOR_SECONDS), CEILING_SECONDS)

    def _reset(self) -> None:
        """Start to count silence from 0."""
        self._silent = self._stopped = self._blocked = 0.0
        self._cpu_seconds: float | None = None

    def _count(self, seen: ProcessState, seconds: float) -> None:
        """Add the time since the last check to the kind of silence to which it belongs."""
        used = 0.0 if self._cpu_seconds is None else seen.cpu_seconds - self._cpu_seconds
        self._cpu_seconds = seen.cpu_seconds
        self._stopped = self._stopped + seconds if seen.state == "T" else 0.0
        if seen.state == "R":
            self._silent += min(seconds, max(0.0, used))  # a thread that ends takes its time along
        elif seen.state in "Dt":
            self._blocked += seconds
        elif seen.state == "S":
            self._silent += seconds
