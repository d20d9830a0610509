"""Places for the programs of a task: this machine, or a Ray cluster that the options name.

A job is a run: its training, then its evaluations.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ringside.cluster.connection import connected
from ringside.cluster.placed_programs import ClusterPrograms, PlacedPrograms
from shared.errors import ConfigError
from shared.files.lock import locked
from shared.files.result_files import make_result_directory
from shared.machine.facts import processor
from shared.machine.subprocesses import die_with
from shared.process.ownership import SUITE_LOCK_FILE, require_writable_run
from shared.process.signals import stack_dumps_held_back
from shared.root import LAUNCHER


class LocalPrograms:
    """Programs of all jobs, which share one place: this machine.

    Attributes:
        processor: model of its CPU.
        stops: number of calls of `stop`.
    """

    def __init__(self) -> None:
        self.processor = processor()
        self.stops = 0
        self._child: subprocess.Popen[bytes] | None = None

    def for_each(self, items: Iterable[Any], work: Callable[[Any], None]) -> None:
        """Call `work` for one item after another."""
        for item in items:
            work(item)

    def open(self) -> LocalPrograms:
        """The place of one job, whose programs run there one after another."""
        return self

    def close(self) -> None:
        """Nothing is held here."""

    def stop(self) -> None:
        """Ask the present program to save and end, and start no other; a second time, to end at once."""
        self.stops += 1
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
        if self.stops:
            return -signal.SIGTERM
        command, end = [sys.executable, str(LAUNCHER), *words()], partial(die_with, os.getpid(), signal.SIGTERM)
        with stack_dumps_held_back():
            self._child = subprocess.Popen(command, start_new_session=True, preexec_fn=end)
        try:
            if self.stops:  # the signal came before the child existed
                self._child.terminate()
            return self._child.wait()
        finally:
            self._child = None


Programs = LocalPrograms | ClusterPrograms
Place = LocalPrograms | PlacedPrograms


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a task whose runs may be placed on a cluster."""

    ray: str | None = None
    """auto or HOST:PORT: place the runs on this Ray cluster, many at once (docs/clusters.md)."""
    cpus_per_run: int = 1
    """With --ray: CPUs of a node for each run."""
    gpus_per_run: float = 0.0
    """With --ray: GPUs of a node for each run; a fraction shares one."""
    ray_insecure: bool = False
    """With --ray: accept a cluster without a token, on which any program that reaches it can run code."""

    def check(self) -> None:
        """Raise `ConfigError` unless the options are used with a cluster, and can be met."""
        if self.cpus_per_run < 1:
            raise ConfigError(f"--cpus-per-run {self.cpus_per_run} must be at least 1.")
        if not (0 <= self.gpus_per_run <= 1 or (self.gpus_per_run > 0 and self.gpus_per_run % 1 == 0)):
            raise ConfigError(f"--gpus-per-run {self.gpus_per_run} must be from 0 to 1, or a whole number.")
        if self.ray is None and (self.cpus_per_run, self.gpus_per_run, self.ray_insecure) != (1, 0, False):
            raise ConfigError("--cpus-per-run, --gpus-per-run and --ray-insecure are for clusters: pass --ray, too.")


@contextmanager
def programs_in(out: Path, owner: str, cluster: ClusterOptions) -> Iterator[Programs]:
    """Programs whose runs lie in one directory, which is locked against others during the block.

    Args:
        out: the directory; it is made where there is none.
        owner: what may hold it otherwise, for the sentence: "a suite that is still going on".
        cluster: where they run, checked.

    Raises:
        ConfigError: the directory cannot be written or is in use, or the cluster is refused.
    """
    lock = out / SUITE_LOCK_FILE
    with _placed(cluster, lock) as programs:  # before anything is written, since a cluster may be refused
        make_result_directory("--out", out)
        require_writable_run(out, "--out")
        with locked(lock, "--out", owner):
            yield programs


@contextmanager
def _placed(cluster: ClusterOptions, shared: Path) -> Iterator[Programs]:
    """Programs on this machine, or on a cluster during the block, whose nodes must see the file `shared`."""
    if cluster.ray is None:
        yield LocalPrograms()
        return
    with connected(cluster.ray, insecure=cluster.ray_insecure):
        from ringside.cluster.ray_hosts import RayHosts

        hosts = RayHosts(cluster.cpus_per_run, cluster.gpus_per_run)
        yield ClusterPrograms(hosts, cluster.cpus_per_run, shared)
