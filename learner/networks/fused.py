"""Plain networks: a packed layout of parameters, and hand-written forward and backward passes.

Outside the model, parameters are one float32 vector in the *canonical* layout, the order of `shared.network_spec`. That
is PyTorch's: weights of convolutions [out, in, y, x], features flattened as (channel, y, x). The model keeps them in a
*packed* layout, so that an update copies nothing to reorder it:

* The planes of frames are cut into blocks of 4x4 pixels, which become channels. The first convolution, 8x8 with stride
  4 on 4 channels of 84x84, is then one of 2x2 with stride 1 on 64 channels of 21x21: the same sums, in a shape for
  which processors are made.
* Everything is channels-last: weights [out, y, x, in], features flattened as (y, x, channel).
* Pixels go in as integers 0..255, which bfloat16 holds exactly; the division by 255 is in the first weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.device import compute_dtype
from learner.engine.host_transfer import HostTransfer
from learner.engine.side_stream import SideStream
from learner.networks.model import ExtraInputs
from shared.frame_shape import BLOCK, CELL
from shared.network_spec import CONVOLUTIONS, Network, parameters_of

PIXEL = 1.0 / 255.0

# Bound once: finding an operator's overload anew costs as much as a small operation.
_convolution_backward = torch.ops.aten.convolution_backward.default
_threshold_backward = torch.ops.aten.threshold_backward.default


def blocks(planes: Tensor, out: Tensor) -> Tensor:
    """Cut planes uint8[n, k, 4 * g, 4 * g], contiguous, into blocks uint8[n, g, g, k * 16]: k of 4x4 pixels each.

    Returns:
        `out`.
    """
    n, k, grid = *planes.shape[:2], planes.shape[2] // BLOCK
    # Four pixels of a line travel as one 32-bit word: four times fewer elements to place.
    words = planes.view(torch.int32).view(n, k, grid, BLOCK, grid).permute(0, 2, 4, 1, 3)
    out.view(torch.int32).view(n, grid, grid, k, BLOCK).copy_(words)
    return out


def planes_in(block: Tensor) -> Tensor:
    """The planes uint8[n, k, 4 * g, 4 * g] of `blocks`: its inverse."""
    grid, k = block.shape[1], block.shape[-1] // CELL
    split = block.reshape(-1, grid, grid, k, BLOCK, BLOCK).permute(0, 3, 1, 4, 2, 5)
    return split.reshape(-1, k, grid * BLOCK, grid * BLOCK)


def stack_in(block: Tensor, stack_offset: int, planes: int) -> Tensor:
    """The part of `blocks` with the stack of so many planes that begins with plane `stack_offset`."""
    return block[..., stack_offset * CELL : (stack_offset + planes) * CELL]


def network_input(block: Tensor, stack_offset: int, planes: int, dtype: torch.dtype) -> Tensor:
    """The stack of `stack_in` as dtype[n, planes * 16, g, g], channels-last, values 0..255."""
    stack = stack_in(block, stack_offset, planes)
    return stack.permute(0, 3, 1, 2).to(dtype, memory_format=torch.channels_last)


class Views(NamedTuple):
    """The layers' parts of one flat vector in packed layout."""

    convolutions: list[tuple[Tensor, Tensor]]
    """(weight [out, in, k, k] in channels-last memory, bias [out]) of each; the first reads planes * 16 channels."""
    hidden: tuple[Tensor, Tensor]
    """weight [hidden, features], bias [hidden]."""
    value: tuple[Tensor, Tensor]
    """weight [outputs * atoms, hidden], bias [outputs * atoms]: an output for each action, and V(s) of a policy."""


class _LayoutMaps(NamedTuple):
    """Indices between the canonical and the packed layout, on one device."""

    to_packed: Tensor
    """int32[P]: for each index of the packed layout that of the canonical one."""
    to_canonical: Tensor
    """int32[P]: for each index of the canonical layout that of the packed one."""
    transfer: HostTransfer


class Architecture:
    """Shapes of a network, and copies between the canonical and the packed layout of its parameters."""

    def __init__(self, network: Network) -> None:
        layers, _ = CONVOLUTIONS[network.name]
        self.network = network
        self.spec = parameters_of(network)
        self.strides = [1] + [stride for _, _, stride in layers[1:]]
        self._kernels = [kernel // stride if i == 0 else kernel for i, (_, kernel, stride) in enumerate(layers)]
        if layers[0][2] != BLOCK or layers[0][1] % BLOCK:
            raise ValueError(f"The first convolution of network {network.name} must have stride {BLOCK}.")
        self._order = self._packed_order()
        self._on_device: dict[torch.device, _LayoutMaps] = {}
        self.convolution_parameters = sum(math.prod(shape) for name, shape in self.spec.shapes if name[:4] == "conv")

    def _packed_order(self) -> NDArray[np.int64]:
        """For each index of the packed layout its index in the canonical one."""
        indices = self.spec.split(np.arange(self.spec.count))  # type: ignore[arg-type]
        order = []
        for name, index in indices.items():
            if name == "conv1.weight":
                out, k = index.shape[0], self._kernels[0]
                split = index.reshape(out, -1, k, BLOCK, k, BLOCK)  # [out, plane, y, dy, x, dx]
                index = split.transpose(0, 2, 4, 1, 3, 5)
            elif index.ndim == 4:
                index = index.transpose(0, 2, 3, 1)
            elif name == "hidden.weight":
                channels = self.spec.shapes[2 * len(self._kernels) - 1][1][0]
                side = math.isqrt(index.shape[1] // channels)
                index = index.reshape(-1, channels, side, side).transpose(0, 2, 3, 1)
            order.append(index.reshape(-1))
        return np.concatenate(order)

    def pack(self, canonical: NDArray[np.float32], packed: Tensor) -> None:
        """Copy parameters from canonical to packed layout, float32[P] both."""
        maps = self._layouts_on(packed.device)
        packed.copy_(maps.transfer.to_device(canonical).index_select(0, maps.to_packed))

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """Copy parameters from packed to canonical layout, float32[P] both."""
        maps = self._layouts_on(packed.device)
        maps.transfer.to_host(packed.index_select(0, maps.to_canonical), canonical)

    def transfer_on(self, device: torch.device) -> HostTransfer:
        """Copies of whole vectors to a device and back."""
        return self._layouts_on(device).transfer

    def _layouts_on(self, device: torch.device) -> _LayoutMaps:
        """Indices on a device, made once: all other processes wait while a GPU's parameters are published."""
        if device not in self._on_device:
            inverse = np.empty(len(self._order), np.int32)
            inverse[self._order] = np.arange(len(inverse))
            to_packed = torch.from_numpy(self._order.astype(np.int32)).to(device)
            transfer = HostTransfer(len(inverse), device)
            self._on_device[device] = _LayoutMaps(to_packed, torch.from_numpy(inverse).to(device), transfer)
        return self._on_device[device]

    def views(self, flat: Tensor) -> Views:
        """The layers' parts of a vector [P] in packed layout."""
        pairs: list[Tensor] = []
        offset = 0
        for name, shape in self.spec.shapes:
            part = flat[offset : offset + math.prod(shape)]
            offset += math.prod(shape)
            if name.startswith("conv") and name.endswith("weight"):
                kernel = self._kernels[len(pairs) // 2]
                pairs.append(part.view(shape[0], kernel, kernel, -1).permute(0, 3, 1, 2))
            else:
                pairs.append(part.view(shape))
        layers = list(zip(pairs[::2], pairs[1::2], strict=True))
        return Views(layers[:-2], layers[-2], layers[-1])


class Weights:
    """One set of parameters, ready for the arithmetic of `precision`.

    Attributes:
        params: float32[P] in packed layout; the optimizer moves them.
        params_bf16: a copy in bfloat16[P] for the passes; with fp32 and tf32 it is `params` itself.
    """

    def __init__(self, architecture: Architecture, device: torch.device, precision: str) -> None:
        self.architecture = architecture
        self.dtype = compute_dtype(precision)
        self.params = torch.zeros(architecture.spec.count, device=device)
        self.params_bf16 = self.params if self.dtype == torch.float32 else self.params.to(self.dtype)
        params, copies = architecture.views(self.params), architecture.views(self.params_bf16)
        self._conv1_params, first_bias = params.convolutions[0][0], copies.convolutions[0][1]
        self._conv1 = torch.zeros_like(self._conv1_params, dtype=self.dtype)
        self.layers = Views([(self._conv1, first_bias), *copies.convolutions[1:]], copies.hidden, params.value)

    def sync_copy(self) -> None:
        """Update `params_bf16`, and the scaled first weights, from `params`."""
        if self.params_bf16 is not self.params:
            self.params_bf16.copy_(self.params)
        self.scale_first()

    def scale_first(self) -> None:
        """Update the first weights, which divide the pixels by 255, from `params`."""
        torch.mul(self._conv1_params, PIXEL, out=self._conv1)

    def load(self, canonical: NDArray[np.float32]) -> None:
        """Take parameters float32[P] in canonical layout."""
        self.architecture.pack(canonical, self.params)
        self.sync_copy()

    def export_into(self, out: NDArray[np.float32]) -> None:
        """Copy `params` in packed layout, a tenth of the time of `Architecture.unpack`."""
        self.architecture.transfer_on(self.params.device).to_host(self.params, out)

    def take(self, exported: NDArray[np.float32]) -> None:
        """Take over parameters in packed layout."""
        self.params.copy_(self.architecture.transfer_on(self.params.device).to_device(exported))
        self.sync_copy()


class FusedPass(NamedTuple):
    """Activations of a forward pass, for the backward pass."""

    inputs: list[Tensor]
    """The input of each convolution, and the last one's output."""
    hidden: Tensor
    """float32[n, hidden]."""
    outputs: Tensor
    """float32[n, outputs, atoms]; with one atom they are Q(s, .)."""

    @property
    def state(self) -> None:
        """None: a plain network is not recurrent."""


def forward(weights: Weights, x: Tensor, settle: Callable[[], None] | None = None) -> FusedPass:
    """The outputs for `network_input`; the last layer is computed in float32.

    Args:
        settle: called before the weights behind the convolutions are read; until it returns they may still change.
    """
    inputs = [x]
    for (weight, bias), stride in zip(weights.layers.convolutions, weights.architecture.strides, strict=True):
        inputs.append(F.conv2d(inputs[-1], weight, bias, stride).relu_())
    if settle is not None:
        settle()
    hidden = F.linear(_features(inputs[-1]), *weights.layers.hidden).relu_().float()
    network = weights.architecture.network
    return FusedPass(inputs, hidden, F.linear(hidden, *weights.layers.value).view(-1, network.outputs, network.atoms))


def backward(weights: Weights, saved: FusedPass, gradient: Tensor, out: Views, side_stream: SideStream) -> None:
    """Write the gradient of sum(gradient * outputs) by all parameters into the views of a flat vector.

    The gradient goes back through the layers in one chain. The side stream computes the gradients of the weights from
    it, except for those of the first layer, which come last.

    Args:
        saved: activations of the forward pass with the same weights.
        gradient: float32[n, actions, atoms].
        out: views of a vector [P] of the weights' dtype; whole after `side_stream.settle()`.
    """
    layers, hidden, features = weights.layers, saved.hidden, _features(saved.inputs[-1])
    last = gradient.view(len(gradient), -1)
    grad = _relu_backward(last @ layers.value[0], hidden).to(weights.dtype)

    def write_matrices(grad: Tensor) -> None:
        if out.value[0].dtype == last.dtype:
            torch.mm(last.t(), hidden, out=out.value[0])
            torch.sum(last, 0, out=out.value[1])
        else:
            out.value[0].copy_(last.t() @ hidden)
            out.value[1].copy_(last.sum(0))
        torch.mm(grad.t(), features, out=out.hidden[0])
        torch.sum(grad, 0, out=out.hidden[1])

    def write_convolution(i: int, grad: Tensor) -> None:
        _, weight, bias = _convolution_gradients(weights, saved, i, grad, inputs=False)
        if i:
            torch._foreach_copy_(out.convolutions[i], (weight, bias))
        else:
            torch.mul(weight, PIXEL, out=out.convolutions[0][0])
            out.convolutions[0][1].copy_(bias)

    side_stream.submit(partial(write_matrices, grad))
    top = saved.inputs[-1]
    grad = (grad @ layers.hidden[0]).view(len(top), *top.shape[2:], top.shape[1]).permute(0, 3, 1, 2)
    for i in reversed(range(1, len(layers.convolutions))):
        grad = _relu_backward(grad, saved.inputs[i + 1])
        side_stream.submit(partial(write_convolution, i, grad))
        grad, _, _ = _convolution_gradients(weights, saved, i, grad, inputs=True)
    write_convolution(0, _relu_backward(grad, saved.inputs[1]))  # the gradient of the pixels is not needed


def _convolution_gradients(
    weights: Weights, saved: FusedPass, i: int, grad: Tensor, *, inputs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of convolution `i` by its inputs, or else that by its weight and bias, from that of its output."""
    stride = weights.architecture.strides[i]
    return _convolution_backward(
        grad,
        saved.inputs[i],
        weights.layers.convolutions[i][0],
        [grad.shape[1]],
        [stride, stride],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [inputs, not inputs, not inputs],
    )


def _features(last: Tensor) -> Tensor:
    """The channels-last output of the last convolution as [n, y * x * channels], without a copy."""
    return last.permute(0, 2, 3, 1).reshape(len(last), -1)


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return _threshold_backward(gradient, output, 0)


class FusedModel(Weights):
    """A plain network, with passes written out."""

    def __init__(self, network: Network, device: torch.device, precision: str) -> None:
        super().__init__(Architecture(network), device, precision)
        self.network = network
        self.head_offset = self.architecture.convolution_parameters
        self.pack, self.unpack = self.architecture.pack, self.architecture.unpack
        self.noise = 0

    def replica(self) -> FusedModel:
        """The same parameters (`ReplicableModel.replica`)."""
        return copy.copy(self)

    def keep_state(self) -> None:
        """Do nothing: a pass changes no parameter."""

    def forward(
        self,
        blocks: Tensor,
        stack_offset: int,
        extra_inputs: ExtraInputs,
        settle: Callable[[], None] | None = None,
        *,
        learns: bool = False,
    ) -> FusedPass:
        """The outputs for stacks (`Model.forward`); extra inputs are ignored."""
        pixels = network_input(blocks, stack_offset, self.network.frames.planes, self.dtype)
        return forward(self, pixels, settle)

    def refresh(self) -> None:
        """Update the scaled copy of the first weights."""
        self.scale_first()

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        self._gradient = self.architecture.views(flat)

    def backward(self, saved: FusedPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`)."""
        backward(self, saved, gradient, self._gradient, side_stream)
