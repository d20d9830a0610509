"""A plain network in PyTorch layers, as a reference."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from shared.network_spec import CONVOLUTIONAL


def plain_values(network: str, flat: Tensor, stacks: Tensor) -> Tensor:
    """Q(s, .) [n, actions] of stacks uint8[n, planes, y, x], of parameters [P] in canonical layout; in their dtype."""
    layers, hidden = CONVOLUTIONAL[network]
    x = stacks.to(flat.dtype) / 255.0
    offset = 0

    def take(*shape: int) -> Tensor:
        nonlocal offset
        offset += math.prod(shape)
        return flat[offset - math.prod(shape) : offset].view(shape)

    for out, kernel, stride in layers:
        weight, bias = take(out, x.shape[1], kernel, kernel), take(out)
        x = F.relu(F.conv2d(x, weight, bias, stride))
    features = x.flatten(1)
    weight, bias = take(hidden, features.shape[1]), take(hidden)
    x = F.relu(F.linear(features, weight, bias))
    actions = (len(flat) - offset) // (hidden + 1)
    weight, bias = take(actions, hidden), take(actions)
    return F.linear(x, weight, bias)
