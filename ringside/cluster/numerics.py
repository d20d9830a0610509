"""The hash of what a machine computes, from a program of its own: this package never loads torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from multiprocess.reduction import ForkingPickler

from ringside.cluster.program_host import module_environment, plain_environment
from shared.errors import RunFailed
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.memory.plan import Plan
from shared.process.library_env import choose_workspace, pinned_thread_env

PROBE = "learner.numerics_probe"
SECONDS = 120.0
"""Longest time of the probe; it takes a second and the start of torch."""
POLL_SECONDS = 5.0
"""Between two calls of `meanwhile`."""


def numerics(plan: Plan, meanwhile: Callable[[], None] = lambda: None) -> str:
    """Hash of the network's answers on this machine; `meanwhile` is called every few seconds.

    Raises:
        RunFailed: it cannot be computed here.
    """
    choose_workspace()
    with pinned_thread_env():
        process = subprocess.Popen(
            [sys.executable, "-m", PROBE],
            env=module_environment(plain_environment()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        output, errors = _answer(process, bytes(ForkingPickler.dumps(plan)), meanwhile)
    finally:
        kill_and_reap(process)
    if process.returncode:
        last = (errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RunFailed(f"Node {os.uname().nodename} cannot compute the network: {last}")
    return output.decode().strip()


def _answer(process: subprocess.Popen[bytes], question: bytes, meanwhile: Callable[[], None]) -> tuple[bytes, bytes]:
    """Output and errors of the probe. Raises `RunFailed` if it does not end in `SECONDS`."""
    deadline, sent = time.monotonic() + SECONDS, False
    while (left := deadline - time.monotonic()) > 0:
        try:
            return process.communicate(None if sent else question, min(POLL_SECONDS, left))
        except subprocess.TimeoutExpired:
            sent = True
            meanwhile()
    raise RunFailed(f"Node {os.uname().nodename} did not answer {PROBE} in {SECONDS:.0f} s.")
