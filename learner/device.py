"""Where the networks run and in what arithmetic, resolved once, and the switches that make it repeatable."""

from __future__ import annotations

import os

import torch

from shared.config import ConfigError


def resolve_device(name: str) -> torch.device:
    """The device of `--device`: auto (CUDA where there is one), cpu, cuda or cuda:N.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if name == "cpu":
        return torch.device("cpu")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise ConfigError(f"--device {name} is no device; it is auto, cpu, cuda or cuda:N.")
    if not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: PyTorch finds no CUDA device on this machine; use --device cpu.")
    number = int(index or 0)
    if number >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA device(s), from cuda:0.")
    return torch.device("cuda", number)


def resolve_precision(precision: str, device: torch.device) -> str:
    """The arithmetic of `--precision`: fp32, tf32 (CUDA only) or bf16.

    Raises:
        ConfigError: the device cannot do it.
    """
    if precision == "auto":
        if device.type == "cuda":
            return "tf32"
        return "bf16" if torch.cpu._is_amx_tile_supported() else "fp32"
    if precision == "tf32" and device.type == "cpu":
        raise ConfigError("--precision tf32 is for CUDA; on a CPU it is fp32 or bf16.")
    return precision


def prepare_torch(device: torch.device, precision: str, threads: int) -> None:
    """Make this process compute the same bits every time. Call it before the first tensor operation.

    `threads` is part of the result: sums are split by it, so it is never left to the library. On CUDA the
    environment must hold CUBLAS_WORKSPACE_CONFIG=:4096:8 already when the process starts.

    Raises:
        ConfigError: the environment does not hold it.
    """
    # Optimiser moments of unused weights decay into denormals, which cost a hundred times a normal number. Set
    # before the threads of the pool exist, which inherit it.
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # Deterministic mode also fills every fresh tensor, to expose reads of unwritten memory: a pass over memory
    # for each temporary, which changes no result here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cuda":
        if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (":4096:8", ":16:8"):
            raise ConfigError(
                "CUBLAS_WORKSPACE_CONFIG must be :4096:8 in the environment before a CUDA process starts; "
                "start training through launch.py, which sets it."
            )
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.cuda.set_device(device)
