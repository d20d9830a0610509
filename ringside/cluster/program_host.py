"""Object on a node that runs programs of `launch.py`, one at a time, for a launcher on another machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringside.cluster.node_object import NodeObject
from shared.errors import ConfigError
from shared.machine.cores import Claims, has_quota, physical_cores
from shared.root import LAUNCHER

SAVE_SECONDS = 120.0
"""Longest time of a program to save and end after it was asked to stop; then it is killed."""


class ProgramHost(NodeObject):
    """Runs programs on this machine."""

    leave_seconds = SAVE_SECONDS

    def __init__(self, cores: int, *, launcher: Path = LAUNCHER, **lease: Any) -> None:
        """Claim cores, if so many are free.

        Args:
            cores: number of CPUs for the programs.
            launcher: the program.
            lease: arguments of `NodeObject`.
        """
        super().__init__(**lease)
        self._launcher, self._claims = launcher, Claims("program")
        if not has_quota():
            affinity = os.sched_getaffinity(0)
            self._claims.claim(cores, [thread for core in physical_cores(affinity) for thread in core])

    def start(self, words: Sequence[str], directory: str, shared: str) -> None:
        """Start `launch.py` with these words; the former program has ended.

        Args:
            directory: working directory.
            shared: file that proves that this machine sees the launcher's files.

        Raises:
            ConfigError: this machine lacks one of them.
        """
        name = os.uname().nodename
        if not os.path.isfile(shared):
            raise ConfigError(
                f"Node {name} does not see {Path(shared).parent}: put --out on a file system that all nodes share."
            )
        if not os.path.isdir(directory):
            raise ConfigError(f"Node {name} has no directory {directory}: start the command from a shared one.")
        words = [str(self._launcher), *words]
        self._start_program(words, directory, cores=self._claims.threads)

    def poll(self, seconds: float) -> tuple[int | None, list[str]]:
        """Wait at most `seconds` for the end of the program.

        Return its exit code, negative for a signal, and the last lines of its output; None while it runs.
        """
        assert self._program is not None, "poll what was started"
        try:
            return self._program.wait(seconds), self._last_lines()
        except subprocess.TimeoutExpired:
            return None, []

    def stop(self) -> None:
        """Ask the program to save and end; a second time, a second later or more, to end at once."""
        if self._program is not None:
            self._program.terminate()

    def close(self) -> None:
        """Kill the program, if it lives; give the cores back."""
        super().close()
        self._claims.close()
