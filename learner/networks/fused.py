"""Plain networks, with forward and backward passes written out: 1.3 to 1.5 times as fast as modules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.engine.accelerator import is_gpu
from learner.engine.side_stream import SideStream
from learner.networks.frame_blocks import PIXEL, network_input, stack_in
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs, ForwardPass
from learner.networks.packed_model import WHOLE, Matrix, PackedModel, Rows
from learner.team.team import ALONE, Team
from shared.frame_shape import BLOCK
from shared.network_spec import CONVOLUTIONAL, Network

# Bound once: finding an operator's overload anew costs as much as a small operation.
_convolution_backward = torch.ops.aten.convolution_backward.default
_threshold_backward = torch.ops.aten.threshold_backward.default


class FusedModel(PackedModel):
    """A plain network. See `learner.networks.model.Model`.

    In its packed layout the first convolution is one of blocks (learner/networks/frame_blocks.py), and features are
    flattened as (y, x, channel), where the canonical layout has (channel, y, x).

    Attributes:
        convolutions: weights [out, in, k, k] in channels-last memory, biases [out]; the first reads planes * 16
            channels.
        hidden: weight [hidden, features], bias [hidden].
        output: weight [outputs * atoms, hidden], bias [outputs * atoms]: an output for each action, and V(s) of a
            policy.
    """

    def __init__(self, network: Network, device: torch.device, precision: str, team: Team = ALONE) -> None:
        # The first stride counts blocks.
        self._strides = [1, *(each.stride for each in CONVOLUTIONAL[network.name].convolutions[1:])]
        super().__init__(network, device, precision, team)
        # cuDNN's gradients of weights in tf32 take twice the time of products of patches (docs/lab/2026-11-gpu.md).
        self._by_product = is_gpu(device) and precision != "bf16"
        layers = ("hidden", self._dtype), (network.head, torch.float32)
        self.matrices = [Matrix(f"{name}.weight", f"{name}.bias", dtype) for name, dtype in layers]
        # What the passes read: parts of `params_bf16`, but the first weights, which are scaled, and the last layer.
        (self._conv1_params, _), *_, self.output = self._layers_in(self.params)
        first, *others, self.hidden, _ = self._layers_in(self.params_bf16)
        self._conv1 = torch.zeros_like(self._conv1_params, dtype=self._dtype)
        self.convolutions = [Affine(self._conv1, first.bias), *others]

    def refresh(self) -> None:
        """Update the first weights, which divide the pixels by 255, from `params`."""
        torch.mul(self._conv1_params, PIXEL, out=self._conv1)

    def _layers_in(self, flat: Tensor) -> list[Affine]:
        """The layers' parts of a vector in packed layout."""
        views = list(self.views(flat).values())
        return [Affine(*layer) for layer in zip(views[::2], views[1::2], strict=True)]

    def _view(self, name: str, part: Tensor, shape: tuple[int, ...]) -> Tensor:
        if name != "conv1.weight":
            return super()._view(name, part, shape)
        k = shape[2] // BLOCK
        return part.view(shape[0], k, k, -1).permute(0, 3, 1, 2)

    def _ordered(self, name: str, view: Tensor) -> Tensor:
        if name == "conv1.weight":
            cut = view.permute(0, 2, 3, 1).unflatten(3, (-1, BLOCK, BLOCK))  # [out, y, x, plane, dy, dx]
            return cut.permute(0, 3, 1, 4, 2, 5)
        if name == "hidden.weight":
            channels, side = self.network.torso
            return view.view(-1, side, side, channels).permute(0, 3, 1, 2)
        return view

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False, rows: Rows = WHOLE
    ) -> ForwardPass:
        """The outputs for stacks (`Model.forward`), the last layer computed in float32; extra inputs are ignored.

        It saves the result of `convolve`, hidden units float32[n, hidden] and `rows`.
        """
        inputs = self.convolve(blocks, stack_offset)
        hidden = F.linear(features_of(inputs[-1]), *self.hidden).relu_().float()
        outputs = F.linear(hidden, *self.output).view(-1, self.network.outputs, self.network.atoms)
        return ForwardPass(outputs, saved=(inputs, hidden, rows))

    def backward(self, saved: ForwardPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient of sum(gradient * outputs) by the parameters (`Model.backward`).

        The gradient goes back through the layers in one chain. The side stream computes the gradients of the weights
        from it, except for those of the first layer, which come last.
        """
        last, (inputs, hidden, rows) = gradient.view(len(gradient), -1), saved.saved
        grad = relu_backward(last @ self.output.weight, hidden).to(self._dtype)

        def write_matrices() -> None:
            self._write_linear(1, last, hidden)
            self._write_linear(0, grad, features_of(inputs[-1]))

        side_stream.submit(write_matrices)
        self.write_convolutions(inputs, grad @ self.hidden.weight, rows, side_stream)

    def convolve(self, blocks: Tensor, stack_offset: int) -> list[Tensor]:
        """The input of each convolution, and the last one's output."""
        inputs = [network_input(stack_in(blocks, stack_offset, self.network.frames.planes), self._dtype)]
        for (weight, bias), stride in zip(self.convolutions, self._strides, strict=True):
            inputs.append(F.conv2d(inputs[-1], weight, bias, stride).relu_())
        return inputs

    def write_convolutions(
        self, inputs: Sequence[Tensor], by_features: Tensor, rows: Rows, side_stream: SideStream
    ) -> None:
        """Write the gradients of the convolutions for each of the rows.

        Args:
            inputs: result of `convolve`.
            by_features: gradient by the features [n, features].
        """
        top = inputs[-1]
        grad = by_features.view(len(top), *top.shape[2:], top.shape[1]).permute(0, 3, 1, 2)
        for i in reversed(range(len(inputs) - 1)):
            grad = relu_backward(grad, inputs[i + 1])
            for vector, own in rows.items():
                write = partial(self._write_convolution, [each[own] for each in inputs], i, grad[own], vector)
                if i:
                    side_stream.submit(write)
                else:
                    write()
            if i:  # the gradient of the pixels is not needed
                grad, *_ = self._convolution_backward(inputs, i, grad, [True, False, False])

    def _write_convolution(self, inputs: Sequence[Tensor], i: int, by_output: Tensor, vector: int) -> None:
        """Write the gradient of convolution `i`, the first of which divides the pixels."""
        into = Affine(*(self._gradients[vector][f"conv{i + 1}.{kind}"] for kind in ("weight", "bias")))
        if self._by_product:
            matrix, last_axis = into.weight.permute(0, 2, 3, 1).flatten(1), by_output.permute(0, 2, 3, 1)
            write_gradient(last_axis.flatten(0, 2), self._patches(inputs[i], i), Affine(matrix, into.bias))
            if not i:
                matrix.mul_(PIXEL)
            return
        _, weight, bias = self._convolution_backward(inputs, i, by_output, [False, True, True])
        if i:
            torch._foreach_copy_(into, (weight, bias))
        else:
            torch.mul(weight, PIXEL, out=into.weight)
            into.bias.copy_(bias)

    def _patches(self, images: Tensor, i: int) -> Tensor:
        """Patches [n * y * x, k * k * in] that convolution `i` reads."""
        k, stride = self.convolutions[i].weight.shape[2], self._strides[i]
        windows = images.permute(0, 2, 3, 1).unfold(1, k, stride).unfold(2, k, stride)  # [n, y, x, in, k, k]
        return windows.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(0, 2)

    def _convolution_backward(
        self, inputs: Sequence[Tensor], i: int, grad: Tensor, wanted: list[bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of convolution `i` by inputs, weight and bias, those that are wanted, from that of its output."""
        stride, weight = self._strides[i], self.convolutions[i].weight
        geometry = [stride, stride], [0, 0], [1, 1], False, [0, 0], 1  # no border, no dilation, no groups
        return _convolution_backward(grad, inputs[i], weight, [grad.shape[1]], *geometry, wanted)


def features_of(last: Tensor) -> Tensor:
    """The channels-last output of the last convolution as [n, y * x * channels], without a copy."""
    return last.permute(0, 2, 3, 1).reshape(len(last), -1)


def relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """The gradient by the input of ReLU, by its output."""
    return _threshold_backward(gradient, output, 0)
