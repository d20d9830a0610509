"""Parameters on their way to nodes: where acting rounds them to bfloat16 anyway, only the rounded bits travel.

A plain network in bf16 uses float32 only of its first weights, which it divides by 255 before it rounds them, and of
its last layer. Published parameters have the order of `shared.network_parameters` layer by layer, so those in between
are one part of the vector. All other parameters travel as they are.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from shared.memory.plan import Plan

_HALF_BITS = 16
_LAST_LAYER = 2
"""Tensors of the last layer: weights and biases."""


class ParameterCoding:
    """Parameters of a run as they travel: the first ones, the rounded ones and the last ones.

    Attributes:
        bytes: of one version on its way.
    """

    def __init__(self, plan: Plan) -> None:
        """Choose the parameters that travel in bfloat16."""
        sizes = [prod(shape) for _, shape in plan.parameters.shapes]
        self._rounded = slice(0, 0)
        if plan.network.plain and plan.config.machine.acts_in == "bf16":
            self._rounded = slice(sizes[0], sum(sizes[:-_LAST_LAYER]))
        self.bytes = 4 * sum(sizes) - 2 * (self._rounded.stop - self._rounded.start)

    def encode(self, parameters: NDArray[np.float32]) -> NDArray[np.uint16]:
        """A copy as it travels."""
        part, words = self._rounded, parameters.view(np.uint16)
        return np.concatenate([words[: 2 * part.start], _rounded(parameters[part]), words[2 * part.stop :]])

    def decode(self, coded: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
        """Write the parameters into float32[P]; those that acting rounds are rounded."""
        part, words = self._rounded, out.view(np.uint16)
        first, last = 2 * part.start, 2 * part.start + part.stop - part.start
        words[:first], words[2 * part.stop :] = coded[:first], coded[last:]
        np.left_shift(coded[first:last], _HALF_BITS, out=out[part].view(np.uint32), dtype=np.uint32)


def _rounded(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Upper halves of the bits, rounded to the nearest and to even, as PyTorch rounds to bfloat16."""
    bits = values.view(np.uint32)
    rounded = (bits >> _HALF_BITS & 1) + bits + ((1 << (_HALF_BITS - 1)) - 1)
    return (rounded >> _HALF_BITS).astype(np.uint16)
