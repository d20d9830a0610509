"""Errors of a GPU, told apart from errors of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shared.errors import DeviceFault

_LIBRARIES = (
    "CUDA error",
    "CUDA driver error",
    "CUDA unknown error",
    "No CUDA GPUs",
    "cudaGetDeviceCount",
    "cuDNN error",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "NVIDIA",
    "NVML",
)
"""Texts of GPU library errors that PyTorch raises as a plain RuntimeError: each such error contains one of them.

The word CUDA alone is not enough. Errors of a program contain it, too, such as that for a copy to the CPU within a
capture."""


@contextmanager
def device_faults_named() -> Iterator[None]:
    """Raise `DeviceFault` instead of PyTorch's errors of a GPU that is out of memory, faulty or lost.

    After a CUDA error nothing in the process can use the device any more, so there is nothing to be done in it.
    """
    try:
        yield
    except RuntimeError as error:
        known = isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError))
        if not known and not any(words in str(error) for words in _LIBRARIES):
            raise
        raise DeviceFault(_sentence(error)) from error


def _sentence(error: RuntimeError) -> str:
    said = (str(error).strip().splitlines() or ["no message"])[0]
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"The GPU is out of memory: {said} A smaller replay buffer or shorter rounds need less; --replay-on host "
            "keeps a replay buffer in main memory; and something else may use this GPU (nvidia-smi)."
        )
    if "out of memory" in str(error):
        return (
            f"A library of the GPU got no memory: {said}. Either the GPU has none beside what PyTorch keeps "
            "(nvidia-smi), or this machine has none that can be pinned (free). A smaller replay buffer needs less."
        )
    return f"The GPU failed: {said}. The kernel log (dmesg, lines with Xid) may say why."
