"""Programs of runs on the nodes of a cluster, many at once; each may be moved to another node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from ringside.cluster.fingerprint import difference, fingerprint
from ringside.cluster.hosts import Host, Hosts, NodeLost
from ringside.cluster.lease import LEASE_SECONDS
from ringside.cluster.program_host import SAVE_SECONDS, Node, ProgramHost, Progress
from shared.errors import ConfigError, RingsideError
from shared.files.lock import wait_until_free
from shared.process.ownership import LOCK_FILE
from shared.text import printable

SILENT_SECONDS = 30.0
"""Time without an answer after which a node counts as lost."""
PROGRESS_SECONDS = 60.0
"""Between two lines about one program."""
MOST_THREADS = 256
"""Items that are worked on at once; a study may have 100,000, and each that waits for a place takes a thread."""
_POLL_SECONDS = 1.0
_Item = TypeVar("_Item")


class ClusterPrograms:
    """Programs on a cluster. Jobs run in parallel, as many as the cluster has room for."""

    def __init__(self, hosts: Hosts, cores: int, shared: Path) -> None:
        """Prepare; nothing is placed yet.

        Args:
            hosts: the cluster.
            cores: CPUs for each program.
            shared: file that every node must see.
        """
        self._hosts, self._cores, self._shared = hosts, cores, shared.absolute()
        self._stops = 0
        self._software = fingerprint()

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for items, `MOST_THREADS` at once; the first error ends all of them and is raised."""
        items = list(items)
        with ThreadPoolExecutor(max_workers=min(max(1, len(items)), MOST_THREADS)) as threads:
            running = {threads.submit(work, item) for item in items}
            while running:
                # In short waits, since Python runs handlers of signals only between them.
                done, running = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
                if any(future.exception() for future in done):
                    self.stop()
                    threads.shutdown(wait=False, cancel_futures=True)
                for future in done:
                    future.result()

    def open(self) -> PlacedPrograms:
        """The place of one job, whose programs all run there unless it is lost."""
        return PlacedPrograms(self)

    def stop(self) -> None:
        """Ask all programs to save and end, and start no other; a second time, to end at once."""
        self._stops += 1

    # --- for PlacedPrograms

    @property
    def stops(self) -> int:
        """Number of calls of `stop`."""
        return self._stops

    def place(self) -> Host:
        """Ask for a place."""
        return self._hosts.place(ProgramHost, self._cores)

    def require_same(self, node: Node) -> None:
        """Raise `ConfigError` if a node has other software than this machine."""
        if sentence := difference(node.name, node.software, self._software):
            raise ConfigError(sentence)

    @property
    def shared(self) -> Path:
        """File that every node must see."""
        return self._shared


class PlacedPrograms:
    """The programs of one job, one after another."""

    def __init__(self, programs: ClusterPrograms) -> None:
        self._programs = programs
        self._host: Host | None = None
        self._node = ""
        """Name of the node, until it has been printed."""
        self._title = ""
        self._run_dir = Path()
        self._said_at = time.monotonic()

    def claim(self) -> bool:
        """Wait until there is a place; False if the programs were stopped before."""
        try:
            return (self._host or self._placed()) is not None
        except NodeLost:
            self._release()
            return True  # `run` asks for another

    def run(
        self,
        words: Sequence[str],
        title: str,
        run_dir: Path,
        *,
        own_session: bool = False,
        quiet: bool = False,
        should_stop: Callable[[], bool] | None = None,
    ) -> int:
        """Run `launch.py` on a node, as `Place.run` in ringside/programs/places.py says.

        `own_session` has no effect: no Ctrl-C of this terminal reaches a node. With `quiet` the last lines of a failure
        are still printed.

        Raises:
            NodeLost: its node was lost. The program has ended, or ends before its lease does.
            ConfigError: the node cannot run it.
        """
        self._title, self._run_dir = title, run_dir
        try:
            return self._run(words, quiet, should_stop)
        except NodeLost:
            self._release()
            self._await_end()
            raise

    def close(self) -> None:
        """Give the place back."""
        self._release()

    def _run(self, words: Sequence[str], quiet: bool, should_stop: Callable[[], bool] | None) -> int:
        host = self._host or self._placed()
        if host is None:
            return 1
        if self._node:
            self._say(f"on node {self._node}.")
            self._node = ""
        host.call("start", list(words), os.getcwd(), str(self._programs.shared), seconds=SILENT_SECONDS)
        told = 0
        deadline: float | None = None
        while True:
            progress: Progress = host.call("poll", _POLL_SECONDS, seconds=SILENT_SECONDS)
            if progress.code is not None:
                if progress.code:
                    self._say(*progress.lines)
                return progress.code
            if should_stop is not None and should_stop():
                should_stop = None
                host.call("stop", seconds=SILENT_SECONDS)
            if self._programs.stops > told:
                told = self._programs.stops
                host.call("stop", seconds=SILENT_SECONDS)
                deadline = deadline or time.monotonic() + SAVE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                self._release()
                return 1
            if progress.lines and not quiet and time.monotonic() - self._said_at > PROGRESS_SECONDS:
                self._say(progress.lines[-1])

    def _placed(self) -> Host | None:
        """A new host with the software of this machine; None if the programs were stopped before there was a place."""
        host = self._host = self._programs.place()
        while not host.ready(_POLL_SECONDS):
            if self._programs.stops:
                self._release()
                return None
        node: Node = host.call("describe", seconds=SILENT_SECONDS)
        self._programs.require_same(node)
        self._node = node.name
        return host

    def _say(self, *lines: str) -> None:
        self._said_at = time.monotonic()
        for line in lines:
            print(printable(f"{self._title}: {line}"), flush=True)

    def _release(self) -> None:
        if self._host is not None:
            self._host.release()
            self._host = None

    def _await_end(self) -> None:
        """Wait until a lost program no longer holds its run directory: it may still be saving.

        Raises:
            RingsideError: it holds it longer than its lease and its saving can last.
        """
        free = wait_until_free(
            self._run_dir / LOCK_FILE, LEASE_SECONDS + SAVE_SECONDS, lambda: self._programs.stops > 0
        )
        if not free and not self._programs.stops:
            raise RingsideError(
                f"{self._run_dir} is still in use, though its node was lost. End the run that uses it, then run the "
                "same command again."
            )
