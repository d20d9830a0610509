"""Linear layers whose weights learn aside: their gradients go straight into the flat vector, beside the way back.

PyTorch's own would add them to what was there before, in the chain of layers: two more passes over matrices that are
most of a network's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.engine.side_stream import SideStream


class Affine(NamedTuple):
    """The parameters of a layer, or where their gradients go."""

    weight: Tensor
    """[outputs, inputs]."""
    bias: Tensor
    """[outputs]."""


def linear(x: Tensor, layer: Affine, gradients: Affine | None, side_stream: Callable[[], SideStream]) -> Tensor:
    """weight x + bias, [..., outputs] of x [..., inputs].

    Args:
        gradients: where those of weight and bias go, of any dtype; None: no backward pass follows. There must be a way
            back through `x`, and one use of the layer in a pass, since nothing is added up.
        aside: asked in the backward pass for where they are computed; whole when it has settled.
    """
    if gradients is None:
        return F.linear(x, *layer)
    y: Tensor = _Linear.apply(x, layer, gradients, side_stream)
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Affine, gradients: Affine, side_stream: Callable[[], SideStream]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer, ctx.gradients, ctx.side_stream = layer, gradients, side_stream
        return F.linear(x, *layer)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        flat, inputs, into = gradient.flatten(0, -2), x.flatten(0, -2), ctx.gradients

        def of_parameters() -> None:
            if into.weight.dtype == flat.dtype:
                torch.mm(flat.t(), inputs, out=into.weight)
                torch.sum(flat, 0, out=into.bias)
            else:
                into.weight.copy_(flat.t() @ inputs)
                into.bias.copy_(flat.sum(0))

        ctx.side_stream().submit(of_parameters)
        return gradient @ ctx.layer.weight, None, None, None
