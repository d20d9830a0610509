"""A launcher whose learner or inference meets faults of a GPU, where there is none.

    FAULT="learner memory once" python -m tests.crash.failing_device ...

Role, fault and how often: in its first life only, or in every one. The words after it are those of launch.py.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec

AFTER = 3
"""Calls of the first life that work before the one that fails. Later lives that fail do so at once: how much work is in
a call depends on the machine's speed, and more than in the life before would be progress."""


def faults() -> dict[str, Exception]:
    """Errors that PyTorch raises, by name."""
    import torch
    from torch.distributed import DistBackendError

    nccl = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:328, "

    return {
        "memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has a capacity of"),
        "access": torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors"),
        "lost": RuntimeError("No CUDA GPUs are available"),
        "library": RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        "host memory": torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be"),
        "lazy call": torch.cuda.DeferredCudaCallError(
            "CUDA call failed lazily at initialization with error: CUDA error: unknown error\n\nCUDA call was"
        ),
        "nccl": DistBackendError(
            f"{nccl}unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
        ),
        "peer": DistBackendError(
            f"{nccl}remote process exited or there was a network error, NCCL version 2.27.5\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
        ),
        "kernels": torch.AcceleratorError(
            "CUDA error: no kernel image is available for execution on the device\nSearch for `cudaErrorNoKernelImage"
        ),
        "assert": torch.AcceleratorError("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in"),
        "capturing": torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nSearch for"),
        "program": RuntimeError("shape '[4, 4]' is invalid for input of size 3"),
        "capture": RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless"),
    }


def main(child_spec: ChildSpec) -> None:
    """The role, which fails at its fourth piece of work."""
    from learner import inference, learner
    from learner.engine import engine

    _, fault, often = os.environ["FAULT"].split()
    owner: Any = engine.Engine if child_spec.role is Role.LEARNER else inference.Server
    name = "run" if child_spec.role is Role.LEARNER else "answer"
    work, calls = getattr(owner, name), 0

    def fail(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if (child_spec.incarnation == 0 and calls > AFTER) or (child_spec.incarnation > 0 and often == "always"):
            raise faults()[fault]
        return work(*arguments)

    setattr(owner, name, fail)
    (learner if child_spec.role is Role.LEARNER else inference).main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role[os.environ["FAULT"].split()[0].upper()]] = "tests.crash.failing_device"
    sys.exit(launch.main(sys.argv[1:]))
