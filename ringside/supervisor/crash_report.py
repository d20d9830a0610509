"""What a person is told of a process that has died for good, or does not end."""

from __future__ import annotations

from pathlib import Path

from shared.errors import FileError
from shared.files.atomic import open_to_read
from shared.process.child import FATAL


def crash_report(name: str, how: str, count: int, code: int, log: Path, begin: int) -> str:
    """The sentence with which a run ends when a role may not come back.

    Args:
        name: of the role.
        how: what happened to it.
        count: how many times in a row.
        code: its exit code; below 0: the signal that ended it.
        log: what it wrote, and
        begin: the byte of it at which this run began.
    """
    last = (_behind(log, begin).strip().splitlines() or ["it left no message"])[-1]
    if code == FATAL:
        return last
    told = f"Its last words: {last} (traceback in {log})" if code >= 0 else f"Where it was, as far as it told: {log}"
    return f"{name} {how}, {count} times in a row without progress. {told}"


def unkillable_message(name: str) -> str:
    """The same of one that was killed and does not end."""
    return (
        f"{name} was killed and does not end: it waits in the kernel for a disk or a driver that does not answer. The "
        "kernel log may say which."
    )


def _behind(log: Path, begin: int) -> str:
    """What a log has from a byte on; nothing when it cannot be read."""
    try:
        with open_to_read(log) as file:
            file.seek(begin)
            return file.read().decode(errors="replace")
    except (OSError, FileError):
        return ""
