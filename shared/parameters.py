"""Names and shapes of a network's parameters, without torch.

Parameters travel as one flat float32 vector, in this order. The scribe turns it back into named tensors for
checkpoints; the networks in `learner/` are built to these shapes (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from shared.config import STACK


@dataclass(frozen=True)
class ParameterSpec:
    """Ordered (name, shape) pairs of one network."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def count(self) -> int:
        """Number of float32 parameters."""
        return sum(prod(shape) for _, shape in self.shapes)

    def split(self, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Named views of a flat vector float32[count]."""
        views, offset = {}, 0
        for name, shape in self.shapes:
            views[name] = flat[offset : offset + prod(shape)].reshape(shape)
            offset += prod(shape)
        return views


def _convolutional(layers: list[tuple[int, int, int]], hidden: int, actions: int) -> ParameterSpec:
    """Shapes of convolutions (channels, kernel, stride) on 84x84x4 and two linear layers."""
    shapes: list[tuple[str, tuple[int, ...]]] = []
    channels, side = STACK, 84
    for i, (out, kernel, stride) in enumerate(layers, start=1):
        shapes += [(f"conv{i}.weight", (out, channels, kernel, kernel)), (f"conv{i}.bias", (out,))]
        channels, side = out, (side - kernel) // stride + 1
    shapes += [("hidden.weight", (hidden, channels * side * side)), ("hidden.bias", (hidden,))]
    shapes += [("value.weight", (actions, hidden)), ("value.bias", (actions,))]
    return ParameterSpec(tuple(shapes))


CONVOLUTIONS: dict[str, tuple[list[tuple[int, int, int]], int]] = {
    "nature": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    "small": ([(16, 8, 4), (16, 4, 2)], 64),
}
"""Layers (channels, kernel, stride) and hidden units by network; nature: Mnih et al. 2015, Methods."""


def parameters_of(network: str, actions: int) -> ParameterSpec:
    """The parameters of a network by name."""
    layers, hidden = CONVOLUTIONS[network]
    return _convolutional(layers, hidden, actions)
