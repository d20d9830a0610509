"""Facts about the machine: cores and memory that this process may really use, and its description for reports.

Limits stand in the affinity mask, in the limits of the process (`ulimit`) and in control groups (control_groups.py).

Functions that read files take the root of the tree (`/` in use), so that tests can show them another machine.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.machine import control_groups
from shared.machine.proc_files import FILESYSTEM, text
from shared.machine.subprocesses import read_output

LIBRARIES = ("torch", "numpy", "ale-py", "numba", "gymnasium", "multiprocess", "safetensors")
"""Libraries whose versions a result depends on."""

DRIVER_SECONDS = 60.0
"""Longest time of a GPU's driver to answer; the first request may have to wake the GPU."""

_PLENTY = 1 << 60
"""Stands for "no limit"."""


def usable_cores(root: Path = FILESYSTEM, affinity: int | None = None) -> int:
    """Cores that this process may use: affinity, and the quota of every control group above it, rounded up.

    Args:
        root: where /proc and /sys are found.
        affinity: size of the affinity mask; by default that of this process.
    """
    cores = affinity if affinity is not None else len(os.sched_getaffinity(0))
    quota = control_groups.in_force(root).cores
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def usable_memory(root: Path = FILESYSTEM) -> int:
    """Bytes that this process and its children may still take before something is killed.

    The minimum of MemAvailable and the free memory of the control groups above.
    """
    free = (_meminfo(root).get("MemAvailable"), control_groups.free_memory(root))
    return min((amount for amount in free if amount is not None), default=_PLENTY)


def total_memory(root: Path = FILESYSTEM) -> int | None:
    """Bytes of physical memory; None: not known."""
    return _meminfo(root).get("MemTotal")


def descriptors() -> tuple[int, int]:
    """Files that this process may have open: the limit in force, and the one that it may raise it to."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def free_tasks(root: Path = FILESYSTEM, limit: int | None = None, user: int | None = None) -> int | None:
    """Processes and threads that may still be started; None: no limit.

    The limits are `ulimit -u`, of which root is free, and those of the control groups above.

    Args:
        root: where /proc and /sys are found.
        limit: the limit of this user's processes; by default that of this process.
        user: the user whose processes count; by default that of this process.
    """
    user = os.getuid() if user is None else user
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0] if limit is None else limit
    free = [control_groups.free_tasks(root)]
    if user != 0 and limit != resource.RLIM_INFINITY:
        free.append(max(0, limit - _tasks_of(user, root)))
    return min((count for count in free if count is not None), default=None)


def free_disk(directory: Path) -> int:
    """Bytes that this user may still write below a directory."""
    return shutil.disk_usage(directory).free


BF16_FLAGS = ("amx_bf16", "avx512_bf16")
"""The kernel's CPU flags of instructions that multiply bfloat16 numbers, the faster ones first."""


def bf16_flags(root: Path = FILESYSTEM) -> list[str]:
    """The processor's flags among `BF16_FLAGS`, in their order."""
    flags = _cpuinfo(root).get("flags", "").split()
    return [flag for flag in BF16_FLAGS if flag in flags]


def processor(root: Path = FILESYSTEM) -> str:
    """Model of the processor."""
    return _cpuinfo(root).get("model name", platform.processor() or platform.machine())


def has_nvidia_driver(root: Path = FILESYSTEM) -> bool:
    """True if an NVIDIA driver is loaded (or, under WSL, the paravirtual GPU is there)."""
    return any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"))


def mps_serves() -> bool:
    """True if the user has started NVIDIA's Multi-Process Service, of which every program on a GPU becomes a client."""
    return os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control"))


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
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int()
assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value if version.value // 1000 >= int(sys.argv[1]) else 0)
"""
"""A program that prints the number of devices: 0 where the driver's CUDA has a lower major version than its argument,
since it cannot run programs built for the higher one (NVIDIA, "CUDA Compatibility")."""


def cuda_devices(root: Path = FILESYSTEM) -> int:
    """Number of CUDA devices that this installation can use; 0 with a torch that was built without CUDA, or for a newer
    one than the driver's.

    The driver is asked in a process of its own, which leaves this one without a CUDA context and obeys
    CUDA_VISIBLE_DEVICES.
    """
    build = torch_cuda_version()
    if not has_nvidia_driver(root) or build is None:
        return 0
    try:
        return int(read_output([sys.executable, "-c", _COUNT_DEVICES, build.partition(".")[0]], DRIVER_SECONDS))
    except (OSError, subprocess.SubprocessError):
        return 0


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA device, as the driver describes it."""

    name: str
    driver: str
    memory: int
    """Bytes."""
    free: int
    """Bytes that are free."""


_GPU_FIELDS = "name,driver_version,memory.total,memory.free"


def gpus() -> list[Gpu]:
    """The devices that `nvidia-smi` shows; none where it is missing or fails."""
    command = ["nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        said = read_output(command, DRIVER_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    rows = [line.split(",") for line in said.splitlines()]
    for row in rows:
        if len(row) != _GPU_FIELDS.count(",") + 1:  # a complaint of the driver's
            continue
        name, driver, *memory = (word.strip() for word in row)
        total, free = (int(word) << 20 if word.isdecimal() else 0 for word in memory)
        found.append(Gpu(name, driver, total, free))
    return found


def describe(root: Path = FILESYSTEM) -> dict[str, Any]:
    """Description of the machine for a result: JSON values only."""
    cpu = _cpuinfo(root)
    siblings, cores = int(cpu.get("siblings", 0)), int(cpu.get("cpu cores", 0))
    names, driver = _gpus(root)
    return {
        "cpu": processor(root),
        "cpus": os.cpu_count(),
        "usable_cores": usable_cores(root),
        "threads_per_core": siblings // cores if cores else None,
        "bf16_flags": bf16_flags(root),
        "memory_bytes": total_memory(root),
        "usable_memory_bytes": usable_memory(root),
        "gpus": names,
        "gpu_driver": driver,
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


def _gpus(root: Path) -> tuple[list[str], str | None]:
    """Names of the NVIDIA devices and version of their driver, from its own files; not every container shows these.

    Then `nvidia-smi` is asked, which may take seconds.
    """
    names = []
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", text(information), re.MULTILINE)
        names += [model.group(1).strip()] if model else []
    version = re.search(r"Kernel Module.*?\s(\d[\d.]+)\s", text(root / "proc/driver/nvidia/version"))
    if not has_nvidia_driver(root) or (names and version):
        return names, version.group(1) if version else None
    shown = gpus()
    return [gpu.name for gpu in shown] or names or ["NVIDIA GPU"], shown[0].driver if shown else None


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    lines = (line.split() for line in text(root / "proc/meminfo").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == "kB"}


def _tasks_of(user: int, root: Path) -> int:
    """Processes and threads of a user."""
    count = 0
    for process in (root / "proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since it was listed
            if process.stat().st_uid == user:
                count += len(os.listdir(process / "task"))
    return count


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    first = text(root / "proc/cpuinfo").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
