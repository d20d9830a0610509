"""Object on a node that runs programs of `launch.py`, one at a time, for a launcher on another machine.

Without a call for `LEASE_SECONDS` the launcher is out of reach and may have the program run elsewhere. So the program
is asked to stop, and this process ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ringside.cluster.fingerprint import fingerprint
from ringside.cluster.lease import LEASE_SECONDS, Lease
from shared.errors import ConfigError
from shared.machine.cores import Claims, has_quota, physical_cores
from shared.machine.facts import processor
from shared.machine.subprocesses import die_with, kill_and_reap, terminate_and_reap
from shared.root import ROOT

SAVE_SECONDS = 120.0
"""Longest time of a program to save and end after it was asked to stop; then it is killed."""
KEPT_LINES = 20
"""Last lines of output that the host keeps."""
_POLL_SECONDS = 0.5
_OF_RAY = ("RAY_", "OMP_NUM_THREADS")
"""Beginnings of variables that Ray sets or reads. Programs do not get them: the token is among them, and the number of
threads is a setting of a run."""


class Progress(NamedTuple):
    """State of the present program."""

    code: int | None
    """Exit code, negative for a signal; None while it runs."""
    lines: tuple[str, ...]
    """Last lines of its output."""


class Node(NamedTuple):
    """Description of the machine of a host."""

    name: str
    software: dict[str, str]
    """As from `fingerprint`."""
    processor: str
    """Model of its processor."""


def describe_node() -> Node:
    """Name, software and processor of this machine."""
    return Node(os.uname().nodename, fingerprint(), processor())


def plain_environment() -> dict[str, str]:
    """The variables of this process without those of Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_RAY)}


def module_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables with our modules in PYTHONPATH, for `python -m` in any directory."""
    paths = [str(ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(paths)}


class ProgramHost:
    """Runs programs on this machine; call its methods from one thread."""

    def __init__(
        self,
        cores: int,
        *,
        launcher: Path = ROOT / "launch.py",
        lease_seconds: float = LEASE_SECONDS,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """Claim cores, if so many are free, and start to watch the lease.

        Args:
            cores: number of CPUs for the programs.
            launcher: the program.
            lease_seconds: longest time without a call.
            end: ends this process with an exit code when the lease has run out.
        """
        self._launcher, self._end = launcher, end
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._claims = Claims("program")
        if not has_quota():
            affinity = os.sched_getaffinity(0)
            self._claims.claim(cores, [thread for core in physical_cores(affinity) for thread in core])
        self._lease = Lease(lease_seconds, self._expire)

    def describe(self) -> Node:
        """Name and software of this machine."""
        self._lease.renew()
        return describe_node()

    def start(self, words: Sequence[str], directory: str, shared: str) -> None:
        """Start `launch.py` with these words.

        Args:
            directory: working directory.
            shared: file that proves that this machine sees the launcher's files.

        Raises:
            ConfigError: this machine lacks one of them.
        """
        self._lease.renew()
        name = os.uname().nodename
        if not os.path.isfile(shared):
            raise ConfigError(
                f"Node {name} does not see {Path(shared).parent}: put --out on a file system that all nodes share."
            )
        if not os.path.isdir(directory):
            raise ConfigError(f"Node {name} has no directory {directory}: start the command from a shared one.")
        assert self._process is None or self._process.poll() is not None, "one program at a time"
        self._lines.clear()
        self._process = subprocess.Popen(
            [sys.executable, str(self._launcher), *words],
            cwd=directory,
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=partial(_begin, os.getpid(), tuple(self._claims.threads)),
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def poll(self, seconds: float) -> Progress:
        """Wait at most `seconds` for the end of the program."""
        self._lease.renew()
        assert self._process is not None, "poll what was started"
        assert self._reader is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Progress(None, tuple(self._lines)[-1:])
        self._reader.join(_POLL_SECONDS)
        return Progress(code, tuple(self._lines))

    def stop(self) -> None:
        """Ask the program to save and end; a second time, a second later or more, to end at once."""
        self._lease.renew()
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """Kill the program, if it lives; give the cores back."""
        self._lease.give_up()
        if self._process is not None:
            kill_and_reap(self._process)
        self._claims.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Keep the last lines of a program's output."""
        assert process.stdout is not None, "its output is a pipe"
        with process.stdout as output:
            for line in output:
                self._lines.append(line.rstrip("\n"))

    def _expire(self) -> None:
        """Stop the program and end this process, since the launcher is out of reach."""
        process = self._process
        if process is not None and process.poll() is None:
            terminate_and_reap(process, SAVE_SECONDS)
        self._end(1)


def _begin(parent: int, cores: tuple[int, ...]) -> None:
    """In the new process: take the cores, and stop when the host ends."""
    if cores:
        os.sched_setaffinity(0, cores)
    die_with(parent, signal.SIGTERM)
