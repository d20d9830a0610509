"""Processes of `multiprocess` that end with their parent, and survive `TELL_STACKS`, from the first instruction on.

Before its first line of our code, a child loads Python, the main module and its arguments, for seconds on a busy
machine. Settings that a process usually makes by itself are therefore made before exec, which keeps them: the
parent-death signal, and the mask that holds back the request for stacks, which would end it, until it can answer.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import multiprocess
from multiprocess import popen_spawn_posix, resource_tracker, spawn, util

from shared.errors import ConfigError
from shared.machine.subprocesses import die_with
from shared.process.signals import stack_dumps_held_back


def require_main_program() -> None:
    """Refuse a call from where no run can be started. Raises `ConfigError`."""
    require_main_guard()
    require_main_thread()


def require_main_thread() -> None:
    """Refuse a call from another thread: signals reach the main thread, and processes end with the thread that starts
    them.

    Raises:
        ConfigError: this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("Training was called from another thread: call it from the main thread.")


def require_main_guard() -> None:
    """Refuse a call from the top level of the main module: every child imports this module again, and would call, too.

    A main module without a file is imported by no child: a script from standard input, or the cells of a notebook.

    Raises:
        ConfigError: the statement of the main module that leads here is in no `if __name__ == "__main__":`.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return
    frame = sys._getframe()
    while frame.f_globals is not vars(main) or not _is_body_of(frame.f_code, path):
        if frame.f_back is None:
            return
        frame = frame.f_back
    for statement in ast.parse(Path(path).read_bytes()).body:
        if statement.lineno <= frame.f_lineno <= (statement.end_lineno or statement.lineno):
            if isinstance(statement, ast.If) and "'__name__'" in ast.dump(statement.test):
                return
            raise ConfigError(
                f"{path}, line {frame.f_lineno}, starts a run whenever the file is imported, and each process of the "
                'run imports it: put the call under if __name__ == "__main__":.'
            )


def _is_body_of(code: CodeType, path: str) -> bool:
    """True if code is the top level of the module in a file."""
    file = code.co_filename
    return code.co_name == "<module>" and os.path.isfile(file) and os.path.samefile(file, path)


class _Popen(popen_spawn_posix.Popen):
    """The start method `spawn`, with a step before exec, and for a main module without a file."""

    def _launch(self, process: multiprocess.Process) -> None:
        originals = util.spawnv_passfds, spawn.get_preparation_data
        util.spawnv_passfds, spawn.get_preparation_data = _fork_exec, partial(_preparation_data, originals[1])
        try:
            super()._launch(process)
        finally:
            util.spawnv_passfds, spawn.get_preparation_data = originals


class ChildProcess(multiprocess.context.SpawnProcess):
    """A process of `multiprocess` that is killed when the thread that started it, the main thread, ends.

    It starts with `TELL_STACKS` blocked, and with what its parent blocks; `enable_stack_dumps` unblocks that one.
    """

    @staticmethod
    def _Popen(process: multiprocess.Process) -> _Popen:
        with stack_dumps_held_back():
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            resource_tracker.ensure_running()  # started by `_launch` it would be killed before it has cleaned up
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # of which its start unblocks SIGINT and SIGTERM
            return _Popen(process)


def _preparation_data(original: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    """Data by which a child prepares itself. A script from standard input has a path that leads to no file."""
    data = original(name)
    if not os.path.isfile(data.get("init_main_from_path", __file__)):
        del data["init_main_from_path"]
    return data


def _fork_exec(path: bytes, words: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start a program that has these descriptors, and return its id."""
    process = subprocess.Popen(
        words,
        executable=path,
        pass_fds=descriptors,
        restore_signals=False,
        preexec_fn=partial(die_with, os.getpid()),
    )
    process.returncode = 0  # unknown; an object without it would reap the process that `multiprocess` waits for
    return process.pid
