"""Child processes that end with their parent, and bounded waits for them."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

REAP_SECONDS = 30.0
"""Longest time of a killed process to end; one that waits for a disk or a driver ends only when that answers."""
_POLL_SECONDS = 0.01

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PIDFD_OPEN = 434
"""Number of the call with x86-64."""


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process by a signal when the thread of `parent` that started it ends.

    For a process that is to last as long as its parent, this must be the main thread.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was armed
        sys.exit(1)


def process_descriptor(pid: int) -> int:
    """Descriptor of a process, readable once that has ended (pidfd_open(2), Linux 5.3). Raises `OSError`.

    Builds of Python with older headers lack `os.pidfd_open`, such as conda's.
    """
    descriptor: int = _LIBC.syscall(_PIDFD_OPEN, pid, 0)
    if descriptor < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return descriptor


def can_open_processes() -> bool:
    """True if the kernel has descriptors of processes, and no container forbids them."""
    try:
        os.close(process_descriptor(os.getpid()))
    except OSError:
        return False
    return True


def leave_threads(code: int) -> NoReturn:
    """End this process. Python would wait for the threads of a user's env, which may never end."""
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # of a full disk, or a stream that code of the user has closed
        sys.stdout.flush()
    os._exit(code)


def read_output(command: Sequence[str], seconds: float, *, stdin: str | None = None, **options: Any) -> str:
    """Return the standard output of a command. The command ends with the thread that waits for it.

    `subprocess.run` would wait without bound for one that is late and does not end, as behind a driver that hangs.

    Args:
        seconds: after which it is killed.
        stdin: its standard input; None: empty.
        options: more for `subprocess.Popen`: its directory `cwd`, its environment `env`.

    Raises:
        OSError: it could not be started. subprocess.TimeoutExpired: it was late. subprocess.CalledProcessError: it
            failed; the exception has its `stderr`.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=partial(die_with, os.getpid()),
        **options,
    )
    try:
        output, errors = process.communicate(stdin, timeout=seconds)
    finally:
        kill_and_reap(process)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return output


def wait_for_end(process: Any, seconds: float) -> bool:
    """Wait up to `seconds` for a process of `multiprocess` to end, and reap it; False: it has not ended.

    `join` and `sentinel` use a pipe of the child. A child that closed it and does not end would be waited for without
    bound, and one whose own children hold it would count as alive.
    """
    deadline = time.monotonic() + seconds
    while process.exitcode is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def terminate_and_reap(process: subprocess.Popen[Any], seconds: float) -> None:
    """Ask a process to end; kill it if it has not ended after `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_and_reap(process)


def kill_and_reap(process: subprocess.Popen[Any]) -> None:
    """Kill a process, if it lives, and reap it, if it ends."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_SECONDS)
