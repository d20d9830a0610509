"""Linear layers that hand over inputs and gradients of outputs, from which their weight gradients follow.

A side stream writes these straight into the flat vector, or a team computes them later, from all rows. PyTorch's
linear layer would add each gradient to the earlier content, within the chain of layers. That costs two more passes over
the matrices, which are most of a network's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Affine(NamedTuple):
    """The parameters of a layer, or the tensors for their gradients."""

    weight: Tensor
    """[outputs, inputs]; of a convolution [outputs, inputs, height, width]."""
    bias: Tensor
    """[outputs]."""


WriteGradient = Callable[[Tensor, Tensor], None]
"""Takes the gradient by the outputs [n, outputs] and the inputs [n, inputs], from which that of the layer follows."""


def write_gradient(gradient: Tensor, inputs: Tensor, into: Affine) -> None:
    """Write the gradients of weight and bias, from that of the outputs [n, outputs] and the inputs [n, inputs]."""
    if into.weight.dtype == gradient.dtype:
        torch.mm(gradient.t(), inputs, out=into.weight)
        torch.sum(gradient, 0, out=into.bias)
    else:
        into.weight.copy_(gradient.t() @ inputs)
        into.bias.copy_(gradient.sum(0))


class WrittenLinear(torch.autograd.Function):
    """weight x + bias, [..., outputs] of x [..., inputs]; the backward pass calls `write`.

    `x` must need a gradient, and a pass must use the layer once, since nothing is added up.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Affine, write: WriteGradient) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer, ctx.write = layer, write
        return F.linear(x, *layer)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        ctx.write(gradient.flatten(0, -2), x.flatten(0, -2))
        return gradient @ ctx.layer.weight, None, None
