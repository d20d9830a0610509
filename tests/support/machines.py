"""Trees of files that look like other machines, for functions that take the root of the tree."""

from __future__ import annotations

from pathlib import Path

GB = 10**9
V1_UNLIMITED = "9223372036854771712"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(root: Path, group: str, files: dict[str, str], mount_root: str = "/") -> Path:
    """A machine with control groups of version 2 only."""
    return tree(
        root,
        {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": f"31 23 0:28 {mount_root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )


def v1(root: Path, group: str, files: dict[str, str]) -> Path:
    """A machine with control groups of version 1, with cpu and cpuacct mounted together."""
    return tree(
        root,
        {
            "proc/self/cgroup": f"5:pids:{group}\n4:memory:{group}\n1:cpu,cpuacct:{group}\n0::/\n",
            "proc/self/mountinfo": (
                "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                "36 31 0:42 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
                "35 31 0:41 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )
