"""Kernels that an operation of PyTorch starts on a GPU: each costs two or three microseconds."""

from __future__ import annotations

from typing import Any

VIEWS = {
    "alias",
    "as_strided",
    "detach",
    "expand",
    "permute",
    "select",
    "slice",
    "squeeze",
    "t",
    "transpose",
    "unsqueeze",
    "view",
    "_reshape_alias",
    "_unsafe_view",
    "empty",
    "empty_strided",
    "empty_like",
}
"""Operations that start nothing."""
KERNELS = {"convolution": 2}
"""Operations that start more than one: cuDNN's convolution leaves the bias to PyTorch. Libraries may start one more
each to reorder data or to add the results of several blocks."""


def kernels_of(name: str, args: Any) -> int:
    """Number of kernels of an operation with these arguments."""
    if name == "convolution_backward":
        return sum(args[-1])
    return 0 if name in VIEWS else KERNELS.get(name, 1)
