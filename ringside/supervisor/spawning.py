"""Processes of `multiprocess` that end with their parent, and survive `TELL_STACKS`, from the first instruction on.

Before its first line of our code, a child loads Python, the main module and its arguments, for seconds on a busy
machine. Settings that a process usually makes by itself are therefore made before exec, which keeps them: the
parent-death signal, and the mask that holds back the request for stacks, which would end it, until it can answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from functools import partial

import multiprocess
from multiprocess import popen_spawn_posix, resource_tracker, util

from shared.machine.subprocesses import die_with
from shared.process.signals import stack_dumps_held_back


class _Popen(popen_spawn_posix.Popen):
    """The start method `spawn`, with `_fork_exec` in the place of the package's own, which has no step before exec."""

    def _launch(self, process: multiprocess.Process) -> None:
        original, util.spawnv_passfds = util.spawnv_passfds, _fork_exec
        try:
            super()._launch(process)
        finally:
            util.spawnv_passfds = original


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
