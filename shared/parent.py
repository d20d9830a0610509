"""Processes that do not outlive the one that started them, and are waited for no longer than is reasonable."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

REAP_SECONDS = 30.0
"""How long a killed process may take to end; one that waits for a disk or a driver ends only when that answers."""

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process by a signal when `parent`, which started it from its main thread, ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was armed
        sys.exit(1)


def killed(process: subprocess.Popen[Any]) -> None:
    """Kill a process, if it lives, and reap it, if it ends."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_SECONDS)
