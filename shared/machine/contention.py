"""CPU time that other programs take from the cores of a run, and that a hypervisor takes from the machine.

The busy time of the usable CPUs, less the CPU time of the run, is the work of other programs. Under a CPU quota the
cores that the run may not use absorb other programs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from shared.machine import facts
from shared.machine.proc_files import FILESYSTEM, text

WORTH_SAYING = 0.1
"""Share of the usable cores from which the CPU time of others is reported: the run's figures are too low then."""
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def sum_cpu_time(processes: Iterable[int]) -> int:
    """Nanoseconds of CPU time of these processes and of children that they have waited for; gone ones count nothing."""
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += sum(psutil.Process(process).cpu_times()[:4])
    return round(total * 1e9)


class Contention:
    """CPU time that others take from a run, added up from reading to reading.

    Attributes:
        cores: the number that the run may use.
        at: of the newest reading, in nanoseconds of the clock of its caller; 0: the kernel does not count.
        others: nanoseconds of core time that other programs took since the first reading. Times of the run and of the
            CPUs are counted at different moments, so it may shrink by a moment's work.
        stolen: the same of the hypervisor.
    """

    def __init__(self, root: Path = FILESYSTEM, cpus: Collection[int] | None = None) -> None:
        """`cpus`: those that the run may use; by default those of this process."""
        self._root, self._cpus = root, os.sched_getaffinity(0) if cpus is None else cpus
        self.cores = facts.usable_cores(root, len(self._cpus))
        self.at = self.others = self.stolen = 0
        self._newest: NDArray[np.int64] | None = None

    def read(self, at: int, own: int) -> None:
        """Take a reading at `at`, until when the processes of the run have used `own` nanoseconds of CPU time."""
        rows = [line.split() for line in text(self._root / "proc/stat").splitlines()]
        names = {f"cpu{cpu}" for cpu in self._cpus}  # psutil does not tell which numbers are offline
        ticks = np.array([row[1:9] for row in rows if row[0] in names], np.int64)
        if not ticks.any():
            return
        user, nice, system, _, _, irq, softirq, stolen = ticks.sum(0) * _TICK_NS
        reading = np.array([at, own, user + nice + system + irq + softirq, stolen])
        elapsed, own, worked, taken = (reading - (reading if self._newest is None else self._newest)).tolist()
        own = max(own, 0)  # a process that died with its fork server takes its time along
        self.at, self._newest = at, reading
        spare = (len(self._cpus) - self.cores) * elapsed
        self.others += max(worked - own - spare, 0) if spare else worked - own
        self.stolen += taken * self.cores // len(self._cpus)


def contention_sentences(others: float | None, stolen: float | None, cores: int) -> list[str]:
    """Sentences about cores that others take, where they exceed `WORTH_SAYING`; None: not known."""
    of = "the only core" if cores == 1 else f"{cores} cores"
    taken = {"Other programs use {:.1f} of {}.": others, "The hypervisor takes {:.1f} of {} (steal time).": stolen}
    least = WORTH_SAYING * cores
    return [words.format(share, of) for words, share in taken.items() if share is not None and share >= least]
