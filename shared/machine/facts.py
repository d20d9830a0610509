"""Facts about the machine: cores and memory that this process may really use, and its description for reports.

Limits stand in the affinity mask, in the limits of the process (`ulimit`) and in control groups (control_groups.py).

Functions that read files take the root of the tree (`/` in use), so that tests can show them another machine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from shared.machine import control_groups, cores
from shared.machine.proc_files import FILESYSTEM, text
from shared.machine.subprocesses import read_output

LIBRARIES = ("torch", "numpy", "ale-py", "numba", "gymnasium", "multiprocess", "safetensors")
"""Libraries whose versions a result depends on."""

DRIVER_SECONDS = 60.0
"""Longest time of a GPU's driver to answer; the first request may have to wake the GPU."""


def usable_cores(root: Path = FILESYSTEM, affinity: int | None = None) -> int:
    """Cores that this process may use: affinity, and the quota of every control group above it, rounded up.

    Args:
        root: where /proc and /sys are found.
        affinity: size of the affinity mask; by default that of this process.
    """
    cores = affinity if affinity is not None else len(os.sched_getaffinity(0))
    quota = control_groups.in_force(root).cores
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def physical_cores(root: Path = FILESYSTEM) -> int:
    """Physical cores whose threads this process may use, each counted once."""
    return len(cores.physical_cores(os.sched_getaffinity(0), root))


def usable_memory(root: Path = FILESYSTEM) -> int:
    """Bytes that this process and its children may still take before something is killed.

    The minimum of the machine's available memory and the free memory of the control groups above.
    """
    available: int = psutil.virtual_memory().available
    in_groups = control_groups.free_memory(root)
    return available if in_groups is None else min(available, in_groups)


def free_tasks(root: Path = FILESYSTEM) -> int | None:
    """Processes and threads that may still be started; None: no limit.

    The limits are `ulimit -u`, of which root is free, and those of the control groups above.
    """
    user, limit, free = os.getuid(), resource.getrlimit(resource.RLIMIT_NPROC)[0], control_groups.free_tasks(root)
    if user == 0 or limit == resource.RLIM_INFINITY:
        return free
    found = psutil.process_iter(["uids", "num_threads"])
    used = sum(each.info["num_threads"] or 0 for each in found if each.info["uids"] and each.info["uids"].real == user)
    return max(0, limit - used if free is None else min(free, limit - used))


BF16_FLAGS = ("amx_bf16", "avx512_bf16")
"""The kernel's CPU flags of instructions that multiply bfloat16 numbers, the faster ones first."""


def bf16_flags(root: Path = FILESYSTEM) -> list[str]:
    """The processor's flags among `BF16_FLAGS`, in their order."""
    flags = _cpuinfo("flags", root).split()
    return [flag for flag in BF16_FLAGS if flag in flags]


def processor(root: Path = FILESYSTEM) -> str:
    """Name of the processor with family, model and stepping: virtual machines give many models the same name."""
    name, *numbers = (_cpuinfo(key, root) for key in ("model name", "cpu family", "model", "stepping"))
    return f"{name} ({'-'.join(numbers)})" if all(numbers) else name or platform.machine()


def arithmetic(*devices: str, root: Path = FILESYSTEM) -> dict[str, str]:
    """Processors and versions of libraries, by name: with others the last bits of a run on these devices differ."""
    found = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "ale-py", "numba")}
    paths = root.glob("proc/driver/nvidia/gpus/*/information") if {*devices} != {"cpu"} else ()
    gpus = {name for path in paths for name in re.findall(r"Model:\s*(.+)", text(path))}
    return found | {"cpu": processor(root)} | ({"gpu": ", ".join(sorted(gpus))} if gpus else {})


def changes(noted: dict[str, Any], here: dict[str, str]) -> list[tuple[str, Any, str]]:
    """Name, noted and present value of each difference to `arithmetic` here; what was not noted is no difference."""
    return [(name, noted[name], value) for name, value in here.items() if noted.get(name, value) != value]


def _cpuinfo(key: str, root: Path) -> str:
    """Value of the first processor in /proc/cpuinfo; empty if there is none."""
    found = re.search(rf"^{key}\s*:(.*)", text(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else ""


def has_nvidia_driver(root: Path = FILESYSTEM) -> bool:
    """True if an NVIDIA driver is loaded (or, under WSL, the paravirtual GPU is there)."""
    return any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"))


def mps_serves() -> bool:
    """True if the user has started NVIDIA's Multi-Process Service, of which every program on a GPU becomes a client."""
    return os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control"))


def torch_cuda_version() -> str | None:
    """CUDA version that the installed torch was built for, or None; read from its files, torch is not loaded."""
    spec = importlib.util.find_spec("torch")
    source = "" if spec is None or spec.origin is None else text(Path(spec.origin).parent / "version.py")
    found = re.search(r"""^cuda\b[^=]*= *["']([\d.]+)""", source, re.MULTILINE)
    return found[1] if found else None


_COUNT_DEVICES = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int()
if cuda.cuDriverGetVersion(ctypes.byref(version)) or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
    sys.exit(1)
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
    except (OSError, subprocess.SubprocessError, ValueError):  # of what a sitecustomize prints
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


def gpus() -> list[Gpu]:
    """The devices that `nvidia-smi` shows; none where it is missing or fails. It may take seconds."""
    fields = "name,driver_version,memory.total,memory.free"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        rows = [line.split(", ") for line in read_output(command, DRIVER_SECONDS).splitlines()]
    except (OSError, subprocess.SubprocessError):
        return []

    whole = (row for row in rows if len(row) == 4)  # another number of columns is a complaint of the driver's
    return [Gpu(row[0], row[1], *(int(word) << 20 if word.isdecimal() else 0 for word in row[2:])) for row in whole]


def describe(root: Path = FILESYSTEM) -> dict[str, Any]:
    """Description of the machine for a result: JSON values only."""
    threads, cores = psutil.cpu_count(), psutil.cpu_count(logical=False)
    shown = gpus() if has_nvidia_driver(root) else None
    return {
        "cpu": processor(root),
        "cpus": os.cpu_count(),
        "usable_cores": usable_cores(root),
        "threads_per_core": threads // cores if threads and cores else None,
        "bf16_flags": bf16_flags(root),
        "memory_bytes": psutil.virtual_memory().total,
        "usable_memory_bytes": usable_memory(root),
        "gpus": [gpu.name for gpu in shown] or ["NVIDIA GPU"] if shown is not None else [],
        "gpu_driver": shown[0].driver if shown else None,
        "cuda": torch_cuda_version(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }
