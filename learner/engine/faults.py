"""Errors of a GPU, told apart from errors of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shared.errors import ConfigError, DeviceFault

_LIBRARIES = (
    "CUDA error|CUDA driver error|CUDA unknown error|No CUDA GPUs|cudaGetDeviceCount|"
    "cuDNN error|CUDNN_STATUS|CUBLAS_STATUS|NVIDIA|NVML|CUDA driver initialization failed|unable to find an engine"
)
"""Texts of GPU library errors that PyTorch raises as a plain RuntimeError: each such error contains one of them.

The word CUDA alone is not enough. Errors of a program contain it, too, such as that for a copy to the CPU within a
capture."""
_IN_NCCL = "unhandled cuda error|Cuda failure"
"""Texts of NCCL errors whose cause is this process's GPU. A peer that is gone raises an NCCL error, too."""
_OF_THE_PROGRAM = "device-side assert triggered|operation not permitted when stream is capturing"
"""Texts of CUDA errors whose cause is the program: another start would meet them again.

Every CUDA error ends with advice about device-side assertions, so those words alone are not enough."""
_NO_KERNELS = "no kernel image is available"


@contextmanager
def device_faults_named() -> Iterator[None]:
    """Raise `DeviceFault` instead of PyTorch's errors of a GPU that is out of memory, faulty or lost.

    After a CUDA error nothing in the process can use the device any more, so there is nothing to be done in it.

    Raises:
        DeviceFault: the GPU is at fault. ConfigError: PyTorch was not built for this GPU.
    """
    try:
        yield
    except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        if _NO_KERNELS in str(error):
            raise ConfigError(
                "The installed torch has no kernels for this GPU. Install a build for its architecture, or pass "
                "--device cpu."
            ) from error
        if not _is_device_fault(error):
            raise
        raise DeviceFault(_sentence(error)) from error


def _is_device_fault(error: Exception) -> bool:
    text = str(error)
    if re.search(_OF_THE_PROGRAM, text):
        return False
    if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError, torch.cuda.DeferredCudaCallError)):
        return True
    return re.search(f"{_LIBRARIES}|{_IN_NCCL}" if "NCCL" in text else _LIBRARIES, text) is not None


def _sentence(error: Exception) -> str:
    said = (str(error).strip().splitlines() or ["no message"])[0]
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"The GPU is out of memory: {said} A smaller replay buffer or shorter rounds need less; --replay-on host "
            "keeps a replay buffer in main memory; and something else may use this GPU (nvidia-smi)."
        )
    if re.search("out of memory|unable to find an engine", str(error)):  # the latter from cuDNN
        return (
            f"A library of the GPU got no memory: {said}. Either the GPU has none beside what PyTorch keeps "
            "(nvidia-smi), or this machine has none that can be pinned (free). A smaller replay buffer needs less."
        )
    return f"The GPU failed: {said}. The kernel log (dmesg, lines with Xid) may say why."
