"""Programs of runs on the nodes of a cluster, many at once; each may be moved to another node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from ringside.cluster.hosts import Host, Hosts, NodeLost
from ringside.cluster.node_object import LEASE_SECONDS, Node, fingerprint
from ringside.cluster.program_host import SAVE_SECONDS, ProgramHost
from shared.errors import ConfigError, RingsideError
from shared.files.lock import wait_until_free
from shared.process.ownership import LOCK_FILE
from shared.text import printable

SILENT_SECONDS = 30.0
"""Time without an answer after which a node counts as lost."""
MOST_THREADS = 256
"""Items that are worked on at once; a study may have 100,000, and each that waits for a place takes a thread."""
_POLL_SECONDS = 1.0
_Item = TypeVar("_Item")


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

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for items, `MOST_THREADS` at once; the first error ends all of them and is raised."""
        with ThreadPoolExecutor(max_workers=MOST_THREADS) as threads:
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
        self.stops += 1


class PlacedPrograms:
    """The programs of one job, one after another."""

    def __init__(self, programs: ClusterPrograms) -> None:
        self._programs = programs
        self._host: Host | None = None
        self._node = ""
        """Name of the node, until it has been printed."""
        self._title = ""

    def claim(self) -> bool:
        """Wait until there is a place; False if the programs were stopped before."""
        try:
            return self._placed() is not None
        except NodeLost:
            self.close()
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
        """Run `launch.py` on a node, as `LocalPrograms.run` does here.

        Of its output only the last lines of a failure are printed.

        Raises:
            NodeLost: its node was lost. The program has ended, or ends before its lease does.
            ConfigError: the node cannot run it.
        """
        self._title = title
        try:
            return self._run(words, should_stop or (lambda: False))
        except NodeLost:
            self.close()
            self._await_end(run_dir)
            raise

    def close(self) -> None:
        """Give the place back."""
        if self._host is not None:
            self._host.release()
            self._host = None

    def _run(self, words: Sequence[str], should_stop: Callable[[], bool]) -> int:
        programs, host = self._programs, self._placed()
        if host is None:
            return 1
        if self._node:
            self._say(f"on node {self._node}.")
            self._node = ""
        host.call("start", list(words), os.getcwd(), str(programs.shared), seconds=SILENT_SECONDS)
        told, asked, deadline = 0, False, float("inf")
        while True:
            code, lines = host.call("poll", _POLL_SECONDS, seconds=SILENT_SECONDS)
            if code is not None:
                self._say(*(lines if code else []))
                return int(code)
            if programs.stops > told:
                told, deadline = programs.stops, min(deadline, time.monotonic() + SAVE_SECONDS)
                host.call("stop", seconds=SILENT_SECONDS)
            elif not asked and should_stop():
                asked = True
                host.call("stop", seconds=SILENT_SECONDS)
            if time.monotonic() > deadline:
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
        self._node = node.name
        return host

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(printable(f"{self._title}: {line}"), flush=True)

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
