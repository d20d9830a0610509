"""Errors of a GPU, told apart from errors of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shared.errors import DeviceFault

_LIBRARIES = ("CUDA", "cuDNN", "CUDNN", "CUBLAS", "NVIDIA", "NVML")
"""Words of which one is in every error that comes from a GPU's libraries through PyTorch as a plain RuntimeError."""


@contextmanager
def device_faults_named() -> Iterator[None]:
    """Turn what PyTorch raises when the GPU is out of memory, faulty or lost into a `DeviceFault`.

    After a CUDA error nothing in the process can use the device any more, so there is nothing to be done in it.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceFault(
            f"The GPU is out of memory: {_first_line(error)} With --replay-on host the frames stay in main memory; a "
            "smaller --replay-size needs less; and something else may use this GPU (nvidia-smi)."
        ) from error
    except RuntimeError as error:
        if not isinstance(error, torch.AcceleratorError) and not any(word in str(error) for word in _LIBRARIES):
            raise
        raise DeviceFault(
            f"The GPU failed: {_first_line(error)}. The kernel log (dmesg, lines with Xid) may say why; --resume goes "
            "on from the last checkpoint."
        ) from error


def _first_line(error: RuntimeError) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
