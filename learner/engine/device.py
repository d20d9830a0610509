"""PyTorch settings with which a process computes the same bits every time, made before its first tensor operation."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial

import torch

from learner.engine.accelerator import accelerator_of, is_gpu
from shared.errors import ConfigError
from shared.process.library_env import SAME_BITS, WORKSPACE

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_HEAP_BLOCK = 32 << 20
"""The most that the C library lets `_M_MMAP_THRESHOLD` be; activations of a chunk stay below it."""


def prepare_torch(device: torch.device, precision: str, threads: int, *, deterministic: bool = True) -> None:
    """Make this process compute the same bits every time. Call it before the first tensor operation.

    `threads` is part of the result: sums are split by it, so it is never left to the library. On CUDA the
    environment must hold a workspace of `shared.process.library_env` already when the process starts. Without
    `deterministic` the libraries take whichever kernels they prefer, or find fastest by trying.

    Raises:
        ConfigError: the environment does not hold it.
    """
    # Optimizer moments of unused weights decay into denormals, which cost a hundred times a normal number. Set
    # before the threads of the pool exist, which inherit it.
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    _keep_freed_memory()
    # The same switch as use_deterministic_algorithms, which would import torch's compiler for it: 1.5 s.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # Deterministic mode also fills every fresh tensor, to expose reads of unwritten memory: a pass over memory
    # for each temporary, which changes no result here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if is_gpu(device):
        workspace = os.environ.get(WORKSPACE)
        if workspace not in SAME_BITS:
            raise ConfigError(
                f"{WORKSPACE} is {workspace!r} in the environment; only {' and '.join(SAME_BITS)} give the same bits "
                "every time. Unset it: it is then set before CUDA starts."
            )
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        accelerator_of(device).set_device(device)


def device_bytes_reader(device: torch.device) -> Callable[[], int] | None:
    """A function that returns the memory that PyTorch holds on `device`, without the context; None on a CPU."""
    return partial(accelerator_of(device).reserved_bytes, device) if is_gpu(device) else None


def _keep_freed_memory() -> None:
    """Tell the C library to keep freed memory, where it can.

    Every update allocates and frees the same megabytes; given back to the system, they return as page faults. Threads
    share one heap, because the library always gives back what is free at the end of another one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Return to the system what a preparation has freed, where the C library can."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
