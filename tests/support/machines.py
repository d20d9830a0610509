"""Trees of files that look like other machines, for functions that take the root of the tree."""

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


def v2(root: Path, group: str, files: dict[str, str]) -> Path:
    """A machine with control groups of version 2 only."""
    held = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    return tree(root, {"proc/self/cgroup": f"0::{group}\n"} | held)


def v1(root: Path, group: str, files: dict[str, str]) -> Path:
    """A machine with control groups of version 1, with cpu and cpuacct mounted together."""
    groups = f"5:pids:{group}\n4:memory:{group}\n1:cpu,cpuacct:{group}\n0::/\n"
    return tree(root, {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}})
