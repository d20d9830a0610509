"""Control groups: limits that a container, a systemd unit or a batch system sets for this process.

`os.cpu_count()` and the affinity mask ignore them, and every ancestor group can hold the tightest limit. Version 1 and
version 2 can be mounted side by side. systemd accepts limits that it cannot set, such as AllowedCPUs with version 1 or
a CPUQuota that is not delegated to the user. So the limits in force are read from the kernel.

Functions take the root of the tree (`/` in use), so that tests can show them another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.machine.proc_files import FILESYSTEM, number, pairs, text

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
        parts = (
            "no limit of processor time"
            if self.cores is None
            else f"processor time of {self.cores:g} {'core' if self.cores == 1 else 'cores'}",
            "no limit of memory" if self.memory is None else f"memory of {self.memory / 1e9:.1f} GB",
            "no limit of tasks" if self.tasks is None else f"{self.tasks:,} tasks",
        )
        return f"{', '.join(parts)} ({self.group})"


def in_force(root: Path = FILESYSTEM) -> InForce:
    """The limits that control groups put on this process."""
    quotas = [quota / period for quota, period in map(cpu_quota, groups(root, "cpu")) if quota is not None and period]
    memories = [limit for limit in map(memory_limit, groups(root, "memory")) if limit is not None]
    tasks = [limit for limit in (number(group / "pids.max") for group in groups(root, "pids")) if limit is not None]
    paths = _paths(root)
    return InForce(
        paths.get("memory", paths.get("", "/")),
        min(quotas, default=None),
        min(memories, default=None),
        min(tasks, default=None),
    )


def cpu_quota(group: Path) -> tuple[int | None, int]:
    """Quota and period of a group in microseconds; quota None: no limit."""
    words = text(group / "cpu.max").split()
    if len(words) == 2:
        return (None if words[0] == "max" else int(words[0])), int(words[1])
    quota, period = number(group / "cpu.cfs_quota_us"), number(group / "cpu.cfs_period_us")
    return (quota if quota is not None and quota > 0 else None), period or 0


def cpu_time(root: Path = FILESYSTEM) -> int | None:
    """Nanoseconds of CPU time of the innermost group above this process that has a quota; None: not known."""
    for group in groups(root, "cpu"):
        if cpu_quota(group)[0] is not None:
            used = pairs(group / "cpu.stat").get("usage_usec")  # version 2
            return number(group / "cpuacct.usage") if used is None else used * 1_000
    return None


def memory_limit(group: Path) -> int | None:
    """Bytes that a group may take, or None."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = number(group / name)
        if limit is not None and limit < _UNLIMITED:
            return limit
    return None


def free_memory(root: Path = FILESYSTEM) -> int | None:
    """Bytes that the groups above still leave; None: none of them limits memory.

    Of each, its limit less what it uses beyond file cache that can be dropped.
    """
    free = []
    for group in groups(root, "memory"):
        limit = memory_limit(group)
        if limit is None:
            continue
        used = number(group / "memory.current") or number(group / "memory.usage_in_bytes") or 0
        statistics = pairs(group / "memory.stat")
        cache = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
        free.append(max(0, limit - max(0, used - cache)))
    return min(free, default=None)


def free_tasks(root: Path = FILESYSTEM) -> int | None:
    """Processes and threads that the groups above still allow; None: no group limits them."""
    free = []
    for group in groups(root, "pids"):
        limit = number(group / "pids.max")
        if limit is not None:
            free.append(max(0, limit - (number(group / "pids.current") or 0)))
    return min(free, default=None)


def oom_kills(root: Path = FILESYSTEM) -> int:
    """Processes that the kernel has killed for lack of memory so far: of this process's group, else of the machine.

    It counts before it kills, so a process that sees the death sees the count.
    """
    own = next(groups(root, "memory"), None)  # counts of the groups above hold other people's processes
    for name in ("memory.events", "memory.oom_control"):
        count = None if own is None else pairs(own / name).get("oom_kill")
        if count is not None:
            return count
    return pairs(root / "proc/vmstat").get("oom_kill", 0)


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

    A container sees its own group mounted as the top (the mount's root is then the group itself), or a path of
    the host that is not there; directories that do not exist are left out.
    """
    paths = _paths(root)
    for line in text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            name = ""
        elif kind == "cgroup" and controller in options.split(" ")[-1].split(","):
            name = controller
        else:
            continue
        if name not in paths:
            continue
        mount_root, mount_point = left.split(" ")[3:5]
        top = root / _unescape(mount_point).lstrip("/")
        inner = Path(paths[name])
        below = inner.relative_to(mount_root) if inner.is_relative_to(mount_root) else Path()
        for group in (top / below, *(top / below).parents):
            if group.is_dir():
                yield group
            if group == top:
                break


def _paths(root: Path) -> dict[str, str]:
    """This process's group by controller; "" stands for version 2, which names no controllers in its line."""
    paths: dict[str, str] = {}
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _unescape(path: str) -> str:
    r"""A path of mountinfo, where a space is written \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)
