"""The Q networks, by name, over one flat vector of parameters."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from shared.config import FRAME_SIDE, STACK
from shared.parameters import CONVOLUTIONS, ParameterSpec, parameters_of
from shared.random import Stream, bits


def initial_parameters(spec: ParameterSpec, seed: int) -> NDArray[np.float32]:
    """Fresh parameters float32[P]: every weight and bias uniform in +-1/sqrt(fan-in), as PyTorch's layers begin.

    (Torch7, in which the DQN of 2015 was written, begins its layers the same way.) Drawn on the CPU, so equal on all devices.
    """
    generator = torch.Generator().manual_seed(bits(seed, Stream.NETWORK) >> 1)
    pieces, bound = [], 0.0
    for name, shape in spec.shapes:
        if name.endswith(".weight"):
            bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        pieces.append((torch.rand(math.prod(shape), generator=generator) * 2.0 - 1.0) * bound)
    return torch.cat(pieces).numpy()


def views_of(flat: Tensor, spec: ParameterSpec) -> dict[str, Tensor]:
    """Named views of a flat vector float32[P]."""
    views, offset = {}, 0
    for name, shape in spec.shapes:
        views[name] = flat[offset : offset + math.prod(shape)].view(shape)
        offset += math.prod(shape)
    return views


def forward(views: dict[str, Tensor], network: str, stacks: Tensor) -> Tensor:
    """Q(s, .) float32[n, actions] of stacks uint8[n, 4, 84, 84]."""
    layers, _ = CONVOLUTIONS[network]
    x = (stacks.to(torch.float32) / 255.0).contiguous(memory_format=torch.channels_last)
    for i, (_, _, stride) in enumerate(layers, start=1):
        x = F.relu(F.conv2d(x, views[f"conv{i}.weight"], views[f"conv{i}.bias"], stride))
    x = F.relu(F.linear(x.flatten(1), views["hidden.weight"], views["hidden.bias"]))
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.float(), views["value.weight"], views["value.bias"])


class Policy:
    """A network that answers a fixed number of stacks with the values of their actions."""

    def __init__(self, network: str, actions: int, device: torch.device, precision: str, batch: int) -> None:
        self._network = network
        self._spec = parameters_of(network, actions)
        self._batch = batch
        self._bf16 = precision == "bf16"
        self._device = device
        self._flat = torch.zeros(self._spec.count, device=device)
        self._views = views_of(self._flat, self._spec)

    def load(self, flat: NDArray[np.float32]) -> None:
        """Take a new version of the parameters, float32[P]."""
        self._flat.copy_(torch.from_numpy(flat))

    @torch.inference_mode()
    def q_values(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .) float32[batch, actions] of stacks uint8[batch, 4, 84, 84].

        Raises:
            ValueError: the batch has another shape; results may depend on the shape, so it never changes.
        """
        if stacks.shape != (self._batch, STACK, FRAME_SIDE, FRAME_SIDE):
            raise ValueError(f"The policy answers batches of {self._batch} stacks; this one has shape {stacks.shape}.")
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
            q = forward(self._views, self._network, torch.from_numpy(stacks).to(self._device))
        values: NDArray[np.float32] = q.float().cpu().numpy()
        return values


def greedy(q: NDArray[np.float32]) -> NDArray[np.int64]:
    """The first best action int64[n] of each row of q float32[n, actions].

    Raises:
        FloatingPointError: a value is not a number or infinite; argmax alone would pick it silently.
    """
    if not np.isfinite(q).all():
        row = int(np.nonzero(~np.isfinite(q).all(axis=1))[0][0])
        raise FloatingPointError(f"The network answered row {row} with {q[row].tolist()}; its parameters are broken.")
    return q.argmax(axis=1)
