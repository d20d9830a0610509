"""Programs on this machine, one at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shared.machine.subprocesses import die_with
from shared.process.signals import stack_dumps_held_back
from shared.root import LAUNCHER


class LocalPrograms:
    """Programs of all jobs, which share one place: this machine."""

    def __init__(self, launcher: Path = LAUNCHER) -> None:
        self._launcher = launcher
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def for_each(self, items: Iterable[Any], work: Callable[[Any], None]) -> None:
        """Call `work` for one item after another."""
        for item in items:
            work(item)

    def open(self) -> LocalPrograms:
        """The place of one job, whose programs run there one after another."""
        return self

    def close(self) -> None:
        """Give the room back."""

    def stop(self) -> None:
        """Ask the present program to save and end, and start no other; a second time, to end at once."""
        self._stopped = True
        if self._child is not None:
            self._child.terminate()

    def run(self, words: Callable[[], Sequence[str]], title: str, run_dir: Path) -> int | None:
        """Run `launch.py` to its end. It stops gracefully if this process is killed. No Ctrl-C reaches it.

        Args:
            words: makes the arguments, which may depend on how far the job is.
            title: beginning of the lines about the job.
            run_dir: run directory of the job.

        Returns:
            Its exit code, negative for a signal; None: it was given up.
        """
        if self._stopped:
            return -signal.SIGTERM
        command, end = [sys.executable, str(self._launcher), *words()], partial(die_with, os.getpid(), signal.SIGTERM)
        with stack_dumps_held_back():
            self._child = subprocess.Popen(command, start_new_session=True, preexec_fn=end)
        try:
            if self._stopped:  # the signal came before the child existed
                self._child.terminate()
            return self._child.wait()
        finally:
            self._child = None
