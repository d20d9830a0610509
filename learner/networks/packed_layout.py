"""Layouts of the parameters of a plain network.

Outside the model, parameters are one float32 vector in the *canonical* layout, the order of
`shared.network_parameters`. That is PyTorch's: weights of convolutions [out, in, y, x], features flattened as (channel,
y, x). The model keeps them in a *packed* layout, so that an update copies nothing to reorder it: weights [out, y, x,
in], features flattened as (y, x, channel), and the first convolution as one of blocks
(learner/networks/frame_blocks.py).
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import HostTransfer
from learner.networks.linear import Affine
from shared.frame_shape import BLOCK
from shared.network_parameters import parameters_of
from shared.network_spec import CONVOLUTIONAL, Network


class LayerViews(NamedTuple):
    """The layers' parts of one flat vector in packed layout."""

    convolutions: list[Affine]
    """Weights [out, in, k, k] in channels-last memory, biases [out]; the first reads planes * 16 channels."""
    hidden: Affine
    """weight [hidden, features], bias [hidden]."""
    output: Affine
    """weight [outputs * atoms, hidden], bias [outputs * atoms]: an output for each action, and V(s) of a policy."""


class PackedLayout:
    """The packed layout of a network's parameters on a device, and copies from and to the canonical one.

    Attributes:
        spec: the canonical layout.
        strides: strides of the convolutions; that of the first counts blocks.
        convolution_parameters: number of parameters of the convolutions, which come first in both layouts.
        transfer: copies of whole vectors to the device and back.
    """

    def __init__(self, network: Network, device: torch.device) -> None:
        layers = CONVOLUTIONAL[network.name].convolutions
        self.spec = parameters_of(network)
        self.strides = [1] + [stride for _, _, stride in layers[1:]]
        self._kernels = [kernel // stride if i == 0 else kernel for i, (_, kernel, stride) in enumerate(layers)]
        if not layers[0].reads_blocks:
            raise ValueError(f"The first convolution of network {network.name} must have stride {BLOCK}.")
        self.convolution_parameters = sum(math.prod(shape) for name, shape in self.spec.shapes if name[:4] == "conv")
        order = self._packed_order()
        inverse = np.empty(len(order), np.int32)
        inverse[order] = np.arange(len(order))
        self._to_packed = torch.from_numpy(order).to(device)
        self._to_canonical = torch.from_numpy(inverse).to(device)
        self.transfer = HostTransfer(len(order), device)

    def _packed_order(self) -> NDArray[np.int32]:
        """For each index of the packed layout its index in the canonical one."""
        indices = self.spec.split(np.arange(self.spec.count, dtype=np.int32))
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
        packed.copy_(self.transfer.to_device(canonical).index_select(0, self._to_packed))

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """Copy parameters from packed to canonical layout, float32[P] both."""
        self.transfer.to_host(packed.index_select(0, self._to_canonical), canonical)

    def views(self, flat: Tensor) -> LayerViews:
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
        *convolutions, hidden, output = itertools.starmap(Affine, zip(pairs[::2], pairs[1::2], strict=True))
        return LayerViews(convolutions, hidden, output)
