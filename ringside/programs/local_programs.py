"""Programs on this machine, one at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.machine.subprocesses import die_with
from shared.process.signals import stack_dumps_held_back
from shared.root import LAUNCHER

POLL_SECONDS = 0.5
"""Interval of the calls of `should_stop`."""
_Item = TypeVar("_Item")


class LocalPrograms:
    """Programs of all jobs, which share one place: this machine."""

    def __init__(self, launcher: Path = LAUNCHER) -> None:
        self._launcher = launcher
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for one item after another."""
        for item in items:
            work(item)

    def open(self) -> LocalPrograms:
        """All jobs share this object."""
        return self

    def claim(self) -> bool:
        """True unless the programs were stopped: there is always room for one."""
        return not self._stopped

    def close(self) -> None:
        """Nothing is held between programs."""

    def stop(self) -> None:
        """Stop the present program, which saves itself, and start no other."""
        self._stopped = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)  # a run counts two signals within a second as one

    def run(
        self,
        words: Sequence[str],
        title: str,
        run_dir: Path,
        *,
        own_session: bool = True,
        quiet: bool = False,
        should_stop: Callable[[], bool] | None = None,
    ) -> int:
        """Run `launch.py` with these arguments. It stops gracefully if this process is killed."""
        if self._stopped:
            return -signal.SIGTERM
        end = partial(die_with, os.getpid(), signal.SIGTERM)
        command = [sys.executable, str(self._launcher), *words]
        output = subprocess.DEVNULL if quiet else None
        with stack_dumps_held_back():
            self._child = subprocess.Popen(command, stdout=output, start_new_session=own_session, preexec_fn=end)
        try:
            if self._stopped:  # the signal came before the child existed
                self._child.terminate()
            return _wait(self._child, should_stop)
        finally:
            self._child = None


def _wait(child: subprocess.Popen[bytes], should_stop: Callable[[], bool] | None) -> int:
    """Wait for the end of a program, and ask it to end once it should stop; return its exit code."""
    while should_stop is not None:
        try:
            return child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if should_stop():
                child.terminate()
                should_stop = None
    return child.wait()
