"""CPU time of the processes of a run by role, as the kernel counts it."""

from __future__ import annotations

import time
from collections import defaultdict

import psutil

PREFIX = "ringside "
"""Beginning of the title of each child of a run, before its name: `ringside actor 0`."""
LAUNCHER = "launcher"


class CoreSampler:
    """CPU time of a run between `begin` and `use`, by role."""

    def __init__(self, launcher: int) -> None:
        """`launcher`: process that started the others."""
        self._launcher = launcher
        self._began: tuple[float, defaultdict[str, float]] | None = None

    def begin(self) -> None:
        """Start to count; without effect if that was done before."""
        if self._began is None:
            self._began = time.perf_counter(), _cpu_seconds(self._launcher)

    def use(self) -> dict[str, float]:
        """Cores that each role has used since `begin`, in the mean; empty without it."""
        if self._began is None:
            return {}
        at, before = self._began
        spent, seconds = _cpu_seconds(self._launcher), time.perf_counter() - at
        return {role: (spent[role] - before[role]) / seconds for role in spent}


def _cpu_seconds(launcher: int) -> defaultdict[str, float]:
    """CPU seconds so far of a launcher and of its children by role; those that have ended are left out."""
    spent: defaultdict[str, float] = defaultdict(float)
    try:
        process = psutil.Process(launcher)
        for each in [process, *process.children()]:
            title = " ".join(each.cmdline())
            role = title.removeprefix(PREFIX).split()[0] if title.startswith(PREFIX) else LAUNCHER
            times = each.cpu_times()
            spent[role] += times.user + times.system
    except psutil.NoSuchProcess:  # it has ended meanwhile
        pass
    return spent
