"""Facts about the machine: cores and memory that this process may really use, and what to write into reports.

A container's or a systemd unit's limits stand in control groups, of which `os.cpu_count()` and the affinity mask
know nothing; every ancestor group can hold the tightest one. Version 1 and version 2 can be mounted side by side.

Functions that read files take the root of the tree (`/` in use), so that tests can show them another machine.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "numpy", "ale-py", "numba", "gymnasium", "multiprocess", "safetensors")
"""Whose versions a result depends on."""

_ROOT = Path("/")
_UNLIMITED = 1 << 60
"""Control groups of version 1 say "no limit" with a number near 2**63."""


def usable_cores(root: Path = _ROOT, affinity: int | None = None) -> int:
    """Cores that this process may use: affinity, and the quota of every control group above it, rounded up.

    Args:
        root: where /proc and /sys are found.
        affinity: size of the affinity mask; by default that of this process.
    """
    cores = affinity if affinity is not None else len(os.sched_getaffinity(0))
    for group in _groups(root, "cpu"):
        quota, period = _cpu_quota(group)
        if quota is not None and period > 0:
            cores = min(cores, -(-quota // period))
    return max(1, cores)


def usable_memory(root: Path = _ROOT) -> int:
    """Bytes that this process and its children may still take before something is killed.

    The least of MemAvailable and, for every control group above, its limit less what it uses beyond file cache
    that can be dropped.
    """
    available = _meminfo(root).get("MemAvailable", _UNLIMITED)
    for group in _groups(root, "memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit is None or limit >= _UNLIMITED:
            continue
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
        statistics = _pairs(group / "memory.stat")
        cache = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
        available = min(available, max(0, limit - max(0, used - cache)))
    return available


def has_amx_bf16(root: Path = _ROOT) -> bool:
    """Whether the processor multiplies bfloat16 matrices in hardware (the kernel's CPU flag amx_bf16)."""
    return "amx_bf16" in _cpuinfo(root).get("flags", "").split()


def has_nvidia_driver(root: Path = _ROOT) -> bool:
    """Whether an NVIDIA driver is loaded (or, under WSL, the paravirtual GPU is there)."""
    return any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"))


def torch_cuda_version() -> str | None:
    """CUDA version that the installed torch was built for, or None; read from its files, torch is not loaded."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    source = (Path(spec.origin).parent / "version.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "cuda":
            return ast.literal_eval(node.value) if node.value is not None else None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "cuda":
            return str(ast.literal_eval(node.value)) if ast.literal_eval(node.value) else None
    return None


_COUNT_DEVICES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value)
"""


def cuda_devices(root: Path = _ROOT) -> int:
    """Number of CUDA devices that this installation can use; 0 with a torch that was built without CUDA.

    The driver is asked in a process of its own, which leaves this one without a CUDA context and obeys
    CUDA_VISIBLE_DEVICES.
    """
    if not has_nvidia_driver(root) or torch_cuda_version() is None:
        return 0
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _COUNT_DEVICES], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return 0
    return int(answer.stdout) if answer.returncode == 0 else 0


def describe(root: Path = _ROOT) -> dict[str, Any]:
    """What a result should say about its machine: JSON values only."""
    cpu = _cpuinfo(root)
    siblings, cores = int(cpu.get("siblings", 0)), int(cpu.get("cpu cores", 0))
    return {
        "cpu": cpu.get("model name", platform.processor() or platform.machine()),
        "cpus": os.cpu_count(),
        "usable_cores": usable_cores(root),
        "threads_per_core": siblings // cores if cores else None,
        "amx_bf16": has_amx_bf16(root),
        "memory_bytes": _meminfo(root).get("MemTotal"),
        "usable_memory_bytes": usable_memory(root),
        "gpus": _gpus(root),
        "cuda": torch_cuda_version(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus(root: Path) -> list[str]:
    """Names of the NVIDIA devices, from the driver's own files."""
    names = []
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", _text(information), re.MULTILINE)
        names.append(model.group(1).strip() if model else "NVIDIA GPU")
    return names


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the control groups above this process that may limit `controller`, innermost first.

    A container sees its own group mounted as the top (the mount's root is then the group itself), or a path of
    the host that is not there; directories that do not exist are left out.
    """
    unified = ""  # the one hierarchy of version 2 has no controllers in its line
    paths: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            name = unified
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


def _unescape(path: str) -> str:
    r"""A path of mountinfo, where a space is written \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def _cpu_quota(group: Path) -> tuple[int | None, int]:
    """Quota and period in microseconds; quota None: no limit."""
    words = _text(group / "cpu.max").split()
    if len(words) == 2:
        return (None if words[0] == "max" else int(words[0])), int(words[1])
    quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    return (quota if quota is not None and quota > 0 else None), period or 0


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    lines = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == "kB"}


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    first = _text(root / "proc/cpuinfo").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _pairs(path: Path) -> dict[str, int]:
    """A file of lines "name number"."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def _number(path: Path) -> int | None:
    """A file that holds one number; None for "max" or no such file."""
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _text(path: Path) -> str:
    """A file's text; empty where it is missing or forbidden, as control files are in many containers."""
    try:
        return path.read_text()
    except OSError:
        return ""
