"""Processes that do not outlive the one that started them, and are waited for no longer than is reasonable."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

REAP_SECONDS = 30.0
"""How long a killed process may take to end; one that waits for a disk or a driver ends only when that answers."""
_LOOK_SECONDS = 0.01

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process by a signal when the thread of `parent` that started it ends.

    For a process that is to last as long as its parent, this must be the main thread.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was armed
        sys.exit(1)


def output_of(
    command: Sequence[str],
    seconds: float,
    *,
    told: str | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """What a command writes to its standard output. The command ends with the thread that waits for it.

    `subprocess.run` would wait without bound for one that is late and does not end, as behind a driver that hangs.

    Args:
        seconds: after which it is killed.
        told: its standard input.
        environment: its variables; None: those of this process.
        directory: where it works; None: where this process does.

    Raises:
        OSError: it could not be started. subprocess.TimeoutExpired: it was late. subprocess.CalledProcessError: it
            failed; with what it complained of in `stderr`.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=directory,
        text=True,
        errors="replace",
        preexec_fn=partial(die_with, os.getpid()),
    )
    try:
        said, complaints = process.communicate(told, timeout=seconds)
    finally:
        killed(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, said, complaints)
    return said


class Child(Protocol):
    """A process of `multiprocess`."""

    @property
    def exitcode(self) -> int | None:
        """None while it has not ended; to ask reaps it."""


def ended(process: Child, seconds: float) -> bool:
    """Wait for the end of a child for so many seconds, and reap it; False: it has not ended.

    `join` and `sentinel` go by a pipe of the child. Whoever has let go of it and does not end would be waited for
    without bound, and one whose own children hold it would be taken for alive.
    """
    deadline = time.monotonic() + seconds
    while process.exitcode is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def killed(process: subprocess.Popen[Any]) -> None:
    """Kill a process, if it lives, and reap it, if it ends."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_SECONDS)
