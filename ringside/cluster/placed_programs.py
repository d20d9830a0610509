"""Programs of runs on the nodes of a cluster, many at once; each may be moved to another node.

`ProgramHost` is the object on a node that runs programs of `launch.py`, one at a time.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from ringside.cluster.node_object import LEASE_SECONDS, Host, Hosts, Node, NodeLost, NodeObject, fingerprint
from shared.checkpoint.finding import newest_checkpoint
from shared.errors import ConfigError, RingsideError
from shared.files.lock import wait_until_free
from shared.machine.cores import Claims, has_quota, physical_cores
from shared.process.ownership import LOCK_FILE
from shared.root import LAUNCHER
from shared.text import printable, refused

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
        with refused(f"Node {name} cannot start a program"):
            self._start_program([str(self._launcher), *words], directory, cores=self._claims.threads)

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


SILENT_SECONDS = 30.0
"""Time without an answer after which a node counts as lost."""
MOST_THREADS = 256
"""Items that are worked on at once; a study may have 100,000, and each that waits for a place takes a thread."""
MOST_LOSSES = 5
"""Losses of its node in a row, without a new checkpoint between them, after which a program is given up."""
_POLL_SECONDS = 1.0


def say(title: str, *lines: str) -> None:
    """Print lines about a job."""
    for line in lines:
        print(printable(f"{title}: {line}"), flush=True)


class ClusterPrograms:
    """Programs on a cluster. Jobs run in parallel, as many as the cluster has room for.

    Attributes:
        hosts: the cluster.
        cores: CPUs for each program.
        shared: file that every node must see.
        software: fingerprint that every node must have.
        stops: number of calls of `stop`.
    """

    def __init__(self, hosts: Hosts, cores: int, shared: Path) -> None:
        """Prepare; nothing is placed yet."""
        self.hosts, self.cores, self.shared = hosts, cores, shared.absolute()
        self.stops = 0
        self.software = fingerprint()

    def for_each(self, items: Iterable[Any], work: Callable[[Any], None]) -> None:
        """Call `work` for items, `MOST_THREADS` at once; the first error ends all of them and is raised."""
        with ThreadPoolExecutor(max_workers=MOST_THREADS) as threads:
            try:
                for future in as_completed([threads.submit(work, item) for item in items]):
                    future.result()
            except BaseException:
                self.stop()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def open(self) -> PlacedPrograms:
        """The place of one job, whose programs all run there unless it is lost."""
        return PlacedPrograms(self)

    def stop(self) -> None:
        """Ask all programs to save and end, and start no other; a second time, to end at once."""
        self.stops += 1


class PlacedPrograms:
    """The programs of one job, one after another.

    Attributes:
        processor: model of the CPU of its present node; empty: it has none yet.
    """

    def __init__(self, programs: ClusterPrograms) -> None:
        self.processor = ""
        self._programs = programs
        self._host: Host | None = None
        self._title = ""

    def run(self, words: Callable[[], Sequence[str]], title: str, run_dir: Path) -> int | None:
        """Run `launch.py` on a node, as `LocalPrograms.run` does here, and again elsewhere if the node is lost.

        A training continues from its newest checkpoint. Of the output only the last lines of a failure are printed.

        Returns:
            Its exit code; None: it was given up after `MOST_LOSSES`, or its node was lost after a stop.

        Raises:
            ConfigError: a node cannot run it. RingsideError: a lost program did not end.
        """
        self._title, lost_in_row, newest = title, 0, newest_checkpoint(run_dir)
        while True:
            try:
                return self._run(words)
            except NodeLost as lost:
                self.close()
                self._await_end(run_dir)
                former, newest = newest, newest_checkpoint(run_dir)
                lost_in_row = lost_in_row + 1 if newest == former else 1
                if self._programs.stops or lost_in_row == MOST_LOSSES:
                    return None
                say(self._title, f"its node {lost}; it continues elsewhere.")

    def close(self) -> None:
        """Give the place back."""
        if self._host is not None:
            self._host.release()
            self._host = None

    def _run(self, words: Callable[[], Sequence[str]]) -> int:
        programs, host = self._programs, self._placed()
        if host is None:
            return 1
        host.call("start", list(words()), os.getcwd(), str(programs.shared), seconds=SILENT_SECONDS)
        told, deadline = 0, math.inf
        while time.monotonic() < deadline:
            code, lines = host.call("poll", _POLL_SECONDS, seconds=SILENT_SECONDS)
            if code is not None:
                say(self._title, *(lines if code else []))
                return int(code)
            if programs.stops > told:
                told, deadline = programs.stops, min(deadline, time.monotonic() + SAVE_SECONDS)
                host.call("stop", seconds=SILENT_SECONDS)
        self.close()
        return 1

    def _placed(self) -> Host | None:
        """The host, with the software of this machine; None if the programs were stopped before there was a place."""
        if self._host is not None:
            return self._host
        host = self._host = self._programs.hosts.place(ProgramHost, self._programs.cores)
        while not host.ready(_POLL_SECONDS):
            if self._programs.stops:
                self.close()
                return None
        node: Node = host.call("describe", seconds=SILENT_SECONDS)
        if sentence := node.difference(self._programs.software):
            raise ConfigError(sentence)
        self.processor = node.processor
        say(self._title, f"on node {node.name}.")
        return host

    def _await_end(self, run_dir: Path) -> None:
        """Wait until a lost program no longer holds its run directory: it may still be saving.

        Raises:
            RingsideError: it holds it longer than its lease and its saving can last.
        """
        free = wait_until_free(run_dir / LOCK_FILE, LEASE_SECONDS + SAVE_SECONDS, lambda: self._programs.stops > 0)
        if not free and not self._programs.stops:
            raise RingsideError(
                f"{run_dir} is still in use, though its node was lost. End the run that uses it, then run the same "
                "command again."
            )
