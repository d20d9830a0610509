"""Deaths of a role: their causes, the number in a row that ends the run, and the sentence that the user reads then.

Progress is work beyond that of all former incarnations (`furthest` on the board). Repeated work does not count, so a
death that comes at the same place every time ends the run.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from enum import Enum
from pathlib import Path

from shared.errors import FileError
from shared.files.plain_files import open_to_read
from shared.machine.control_groups import OomKills
from shared.process.child import DEVICE_FAULT, ENV_FAULT, FATAL

_END_BYTES = 1 << 16
"""Most bytes that are read of a log, which may be long."""


class Cause(Enum):
    """Cause of a death; the value is the number in a row that ends the run."""

    OWN = 5
    """Fault of the role: an exception, a signal such as SIGSEGV, a lack of memory, a hang."""
    DEVICE = 2
    """Fault of the GPU: one clean restart. A GPU that fails twice does not recover, and each fault costs it memory."""
    OUTSIDE = 100
    """SIGKILL from outside is no fault of the role. The bound ends a run whose role is killed again and again."""


class Deaths:
    """Deaths of one role."""

    def __init__(self) -> None:
        self._furthest = -1
        self._counts: Counter[Cause] = Counter()

    def add(self, cause: Cause, furthest: int) -> int:
        """Count a death at the furthest point of the role's work; return the number in a row with this cause."""
        if furthest > self._furthest:
            self._counts.clear()
        self._furthest = furthest
        self._counts[cause] += 1
        return self._counts[cause]


def diagnose(code: int, *, hung: bool, oom_kills: OomKills) -> tuple[str, Cause]:
    """Kind and cause of a death, the kind as half a sentence.

    Args:
        code: exit code; negative: the signal that ended the process.
        hung: True if the supervisor killed the process.
        oom_kills: the kernel's kills for lack of memory.
    """
    if hung:
        return "hung", Cause.OWN
    if code == DEVICE_FAULT:
        return "met a fault of the GPU", Cause.DEVICE
    if code == ENV_FAULT:
        return "met an error of its env", Cause.OWN
    if code == -signal.SIGKILL and (starved := oom_kills.explain()):
        return starved, Cause.OWN
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
    return how, Cause.OUTSIDE if code == -signal.SIGKILL else Cause.OWN


def signal_name(number: int) -> str:
    """Name of a signal, such as SIGKILL for 9; real-time signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def crash_report(name: str, how: str, count: int, code: int, log: Path, begin: int) -> str:
    """The sentence that ends a run when a role may not restart.

    Args:
        name: name of the role.
        how: kind of death, as from `diagnose`.
        count: number of such deaths in a row.
        code: exit code; negative: the signal that ended the process.
        log: log file of the role.
        begin: length of the log when this run began.
    """
    last = last_line(log, begin)
    if code == FATAL and last:
        return last
    if code == ENV_FAULT:
        return f"{last} A restart of {name} met it again; the traceback is in {log}."
    if code < 0:
        where = f"Its stacks, if any, are in {log}"
    elif last:
        where = f"The last line of its log: {last} (all of it is in {log})"
    else:
        where = f"It wrote nothing into {log}: code that it ran, such as an env's, ended the process."
    return f"{name} {how}, {count} times in a row without progress. {where}"


def last_line(log: Path, begin: int) -> str:
    """Last line of a log, from byte `begin` on; empty if there is none."""
    return (_end_of(log, begin).strip().splitlines() or [""])[-1]


def unkillable_message(name: str) -> str:
    """Sentence that ends a run when a killed process does not end."""
    return (
        f"{name} was killed and does not end: it waits in the kernel for a disk or a driver that does not answer. The "
        "kernel log may say which."
    )


def _end_of(log: Path, begin: int) -> str:
    """Last text of a log, from byte `begin` on; empty if it cannot be read."""
    try:
        with open_to_read(log) as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - _END_BYTES))
            return file.read(_END_BYTES).decode(errors="replace")
    except (OSError, FileError):
        return ""
