"""CPU time that other programs take from the cores of a run, and that a hypervisor takes from the machine.

The kernel counts the time of every CPU since the boot (`/proc/stat`, in ticks of a hundredth of a second). The busy
time of the usable CPUs, less the CPU time of the run, is the work of other programs. Under a CPU quota the cores that
the run may not use absorb other programs, but programs in the same control group share its quota.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.machine import control_groups, facts
from shared.machine.proc_files import FILESYSTEM, stat_fields, text

WORTH_SAYING = 0.1
"""Share of the usable cores from which the CPU time of others is reported: the run's figures are too low then."""
_WORKING = (0, 1, 2, 5, 6)
"""Columns of a CPU's line in `/proc/stat`: user, nice, system, irq, softirq. Guests are part of user."""
_IDLE = (3, 4)
_STEAL = 7
_CPU_TIME = slice(11, 15)
"""Columns of `shared.machine.proc_files.stat_fields`: utime, stime, and those of reaped children."""


@dataclass(frozen=True)
class CpuTimes:
    """Nanoseconds since the boot, added up over CPUs."""

    busy: int
    """In which they worked for the programs of this machine."""
    stolen: int
    """In which a hypervisor had them work for another machine."""


def cpu_times(cpus: Collection[int], root: Path = FILESYSTEM) -> CpuTimes | None:
    """The times of these CPUs; None where the kernel does not count them, or does not show them."""
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    busy = stolen = idle = 0
    for line in text(root / "proc/stat").splitlines():
        name, *columns = line.split()
        if not name.startswith("cpu"):
            break  # the long lines of interrupts follow
        number = name.removeprefix("cpu")
        if not number.isdecimal() or int(number) not in cpus or len(columns) <= _STEAL:
            continue
        ticks = [int(column) for column in columns]
        busy += sum(ticks[i] for i in _WORKING)
        idle += sum(ticks[i] for i in _IDLE)
        stolen += ticks[_STEAL]
    return CpuTimes(busy * tick, stolen * tick) if busy or idle else None


def sum_cpu_time(processes: Iterable[int], root: Path = FILESYSTEM) -> int:
    """Nanoseconds of CPU time of these processes and of children that they have waited for; gone ones count nothing."""
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    stats = (stat_fields(root / "proc" / str(process) / "stat") for process in processes)
    return tick * sum(int(word) for stat in stats for word in stat[_CPU_TIME])


@dataclass(frozen=True)
class _Reading:
    at: int
    own: int
    times: CpuTimes
    group: int | None


class Contention:
    """CPU time that others take from a run, added up from reading to reading.

    Attributes:
        cores: the number that the run may use.
        at: of the newest reading, in nanoseconds of the clock of its caller; 0: there is none.
        others: nanoseconds of core time that other programs took since the first reading. Times of the run and of the
            CPUs are counted at different moments, so it may shrink by a moment's work.
        stolen: the same of the hypervisor.
    """

    def __init__(self, root: Path = FILESYSTEM, cpus: Collection[int] | None = None) -> None:
        """`cpus`: those that the run may use; by default those of this process."""
        self._root = root
        self._cpus = os.sched_getaffinity(0) if cpus is None else cpus
        self.cores = facts.usable_cores(root, len(self._cpus))
        self.at = self.others = self.stolen = 0
        self._newest: _Reading | None = None

    def read(self, at: int, own: int) -> None:
        """Take a reading at `at`, until when the processes of the run have used `own` nanoseconds of CPU time."""
        times = cpu_times(self._cpus, self._root)
        if times is None:
            return
        group = control_groups.cpu_time(self._root) if self.cores < len(self._cpus) else None
        reading = _Reading(at, own, times, group)
        former, self._newest = self._newest, reading
        self.at = at
        if former is not None:
            self.others += self._taken(former, reading)
            self.stolen += (times.stolen - former.times.stolen) * self.cores // len(self._cpus)

    def _taken(self, old: _Reading, new: _Reading) -> int:
        """Nanoseconds that other programs took between two readings."""
        own = new.own - old.own
        others = new.times.busy - old.times.busy - own
        spare = (len(self._cpus) - self.cores) * (new.at - old.at)
        if not spare:
            return others
        in_group = 0 if old.group is None or new.group is None else new.group - old.group - own
        return max(others - spare, in_group)


def contention_sentences(others: float | None, stolen: float | None, cores: int) -> list[str]:
    """Sentences about cores that others take, where they exceed `WORTH_SAYING`; None: not known."""
    least = WORTH_SAYING * cores
    found = []
    if others is not None and others >= least:
        found.append(f"Other programs use {others:.1f} of {_cores(cores)}.")
    if stolen is not None and stolen >= least:
        found.append(f"The hypervisor takes {stolen:.1f} of {_cores(cores)} (steal time).")
    return found


def _cores(cores: int) -> str:
    return "the only core" if cores == 1 else f"{cores} cores"
