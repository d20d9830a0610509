"""Numbers in bfloat16 as compiled loops on a CPU read and write them: as their bits, since numpy has no such type."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

_BF16_SHIFT = np.uint32(16)
_ROUND = np.uint32(0x7FFF)
_ODD = np.uint32(1)
_LANES = 1024


@njit(inline="always", error_model="numpy")
def from_bf16(bits):  # type: ignore[no-untyped-def]
    """The float32 of a bfloat16's bits."""
    return np.uint32(np.uint32(bits) << _BF16_SHIFT).view(np.float32)


@njit(inline="always", error_model="numpy")
def to_bf16(x):  # type: ignore[no-untyped-def]
    """The bits of the bfloat16 nearest to a float32, ties to even. The NaN that arithmetic makes stays one."""
    b = np.float32(x).view(np.uint32)
    odd = np.uint32(np.uint32(b >> _BF16_SHIFT) & _ODD)
    return np.uint16(np.uint32(np.uint32(b + np.uint32(_ROUND + odd)) >> _BF16_SHIFT))


def bits_of(vector: Tensor) -> NDArray[np.uint16]:
    """The bits of a bfloat16 tensor, as a view; nothing of a float32 one."""
    if vector.dtype == torch.bfloat16:
        return vector.view(torch.uint16).numpy()
    return np.empty(0, np.uint16)


def sum_of_squares(vector: Tensor) -> float:
    """Sum of squares of a vector on a CPU, float32 or bfloat16."""
    if vector.dtype == torch.bfloat16:  # PyTorch's own would widen all of it first
        return float(_sum_of_squares(bits_of(vector)))
    return torch.linalg.vector_norm(vector).item() ** 2


def sum_parts(parts: Tensor, out: Tensor) -> None:
    """Write the sum of the rows of `parts` [P, n] into `out` [n] of the same dtype, in order; on a CPU in float32."""
    if out.dtype == torch.bfloat16 and out.device.type == "cpu":
        _sum_parts(bits_of(parts), bits_of(out))
        return
    total = parts[0] + parts[1] if len(parts) > 1 else parts[0]
    for part in parts[2:]:
        total += part
    out.copy_(total)


@njit(error_model="numpy", cache=True, nogil=True)
def _sum_parts(parts, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        total = from_bf16(parts[0, i])
        for part in range(1, parts.shape[0]):
            total += from_bf16(parts[part, i])
        out[i] = to_bf16(total)


@njit(error_model="numpy", cache=True, nogil=True)
def _sum_of_squares(vector):  # type: ignore[no-untyped-def]
    """Sum of squares of bfloat16 bits, in lanes that a processor adds up side by side."""
    lanes = np.zeros(_LANES, np.float32)
    whole = vector.size - vector.size % _LANES
    for first in range(0, whole, _LANES):
        for lane in range(_LANES):
            x = from_bf16(vector[first + lane])
            lanes[lane] += x * x
    for i in range(whole, vector.size):
        x = from_bf16(vector[i])
        lanes[i - whole] += x * x
    total = 0.0
    for share in lanes:
        total += float(share)
    return total
