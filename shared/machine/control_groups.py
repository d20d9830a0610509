"""Control groups: limits that a container, a systemd unit or a batch system sets for this process.

`os.cpu_count()` and the affinity mask ignore them, and every ancestor group can hold the tightest limit. Version 1 and
version 2 can be mounted side by side. systemd accepts limits that it cannot set, such as AllowedCPUs with version 1 or
a CPUQuota that is not delegated to the user. So the limits in force are read from the kernel.

Functions take the root of the tree (`/` in use), so that tests can show them another machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from shared.machine.proc_files import FILESYSTEM, number, pairs, text

_Number = TypeVar("_Number", int, float)
_UNLIMITED = 1 << 60
"""Version 1 says "no limit" of memory with a number near 2**63."""


@dataclass(frozen=True)
class InForce:
    """The tightest limits of all groups above this process; None: no group limits it."""

    group: str
    """The innermost group, as the kernel names it; of several hierarchies, that of memory."""
    cores: float | None
    """Processor time, in cores."""
    memory: int | None
    """Bytes, shared memory included."""
    tasks: int | None
    """Processes and threads."""

    def __str__(self) -> str:
        cores = "" if self.cores is None else f"{self.cores:g} {'core' if self.cores == 1 else 'cores'}"
        parts = (
            f"processor time of {cores}" if cores else "no limit of processor time",
            "no limit of memory" if self.memory is None else f"memory of {self.memory / 1e9:.1f} GB",
            "no limit of tasks" if self.tasks is None else f"{self.tasks:,} tasks",
        )
        return f"{', '.join(parts)} ({self.group})"


def in_force(root: Path = FILESYSTEM) -> InForce:
    """The limits that control groups put on this process."""
    paths = _paths(root)
    return InForce(
        paths.get("memory", paths.get("", "/")),
        _least(quota_of(group) for group in groups(root, "cpu")),
        _least(_memory_limit(group) for group in groups(root, "memory")),
        _least(number(group / "pids.max") for group in groups(root, "pids")),
    )


def _least(limits: Iterator[_Number | None]) -> _Number | None:
    return min((limit for limit in limits if limit is not None), default=None)


def quota_of(group: Path) -> float | None:
    """Processor time that a group may use, in cores; None: no limit."""
    quota, _, period = text(group / "cpu.max").partition(" ")
    if not period:
        quota, period = text(group / "cpu.cfs_quota_us"), text(group / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.strip().isdecimal() and int(period or 0) else None


def _memory_limit(group: Path, *more: str) -> int | None:
    """Bytes at which processes of a group are killed, or a lower limit among the files `more`; None: no limit."""
    limit = _least(number(group / name) for name in ("memory.max", "memory.limit_in_bytes", *more))
    return limit if limit is None or limit < _UNLIMITED else None


def free_memory(root: Path = FILESYSTEM) -> int | None:
    """Bytes that the groups above still leave; None: none of them limits memory.

    Of each, its limit less what it uses beyond file cache that can be dropped.
    """

    def free(group: Path) -> int | None:
        if (limit := _memory_limit(group, "memory.high")) is None:  # above which they are slowed down
            return None
        used = number(group / "memory.current") or number(group / "memory.usage_in_bytes") or 0
        statistics = pairs(group / "memory.stat")
        cache = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
        return max(0, limit - max(0, used - cache))

    return _least(free(group) for group in groups(root, "memory"))


def free_tasks(root: Path = FILESYSTEM) -> int | None:
    """Processes and threads that the groups above still allow; None: no group limits them."""
    limits = ((number(group / "pids.max"), number(group / "pids.current") or 0) for group in groups(root, "pids"))
    return _least(None if limit is None else max(0, limit - used) for limit, used in limits)


def oom_kills(root: Path = FILESYSTEM) -> int:
    """Processes that the kernel has killed for lack of memory so far: of this process's group, else of the machine.

    It counts before it kills, so a process that sees the death sees the count.
    """
    own = next(groups(root, "memory"), root)  # counts of the groups above hold other people's processes
    files = (own / "memory.events", own / "memory.oom_control", root / "proc/vmstat")
    return next((found for file in files if (found := pairs(file).get("oom_kill")) is not None), 0)


class OomKills:
    """Deaths that the kernel caused for lack of memory. A kill explains one death."""

    def __init__(self, root: Path = FILESYSTEM) -> None:
        self._root = root
        self._explained = oom_kills(root)

    def explain(self) -> str | None:
        """Cause and remedy of a SIGKILL, as half a sentence; None: the machine did not lack memory."""
        if oom_kills(self._root) <= self._explained:
            return None
        self._explained += 1
        limit = in_force(self._root)
        where = "the machine" if limit.memory is None else f"{limit.group}, limited to {limit.memory / 1e9:.1f} GB,"
        return (
            f"was killed for lack of memory: {where} has none left; a smaller replay buffer, shorter rounds or fewer "
            "--actors need less"
        )


def groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the control groups above this process that may limit `controller`, innermost first.

    A container sees its own group as the top, and names it by a path of the host. So the longest end of the path that
    is there counts.
    """
    mounted, paths = root / "sys/fs/cgroup", _paths(root)
    tops = [(controller, top) for top in mounted.glob("*") if controller in top.name.split(",")]  # version 1
    for name, top in [*tops, ("", mounted)]:
        if name in paths:
            below = Path(paths[name]).parts[1:]
            ends = (top.joinpath(*below[first:]) for first in range(len(below) + 1))
            own = next((group for group in ends if group.is_dir()), top)
            yield from (group for group in (own, *own.parents) if group.is_relative_to(top))


def _paths(root: Path) -> dict[str, str]:
    """This process's group by controller; "" stands for version 2, which names no controllers in its line."""
    lines = (line.split(":", 2) for line in text(root / "proc/self/cgroup").splitlines())
    return {name: path for _, controllers, path in lines for name in controllers.split(",")}
