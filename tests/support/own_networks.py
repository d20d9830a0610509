"""Networks of a user for tests: some that Ringside takes, and some that the look before a run refuses."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shared.frame_shape import FrameShape


class Residual(nn.Module):
    """A small residual network with GroupNorm."""

    hidden = 64

    def __init__(self, frames: FrameShape) -> None:
        super().__init__()
        self.first = nn.Conv2d(frames.planes, 16, 8, 4)
        self.norm = nn.GroupNorm(4, 16)
        self.block = nn.Sequential(nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16))
        self.last = nn.Conv2d(16, 16, 4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x / 255))
        return self.last(F.relu(x + self.block(x))).relu().flatten(1)


class Attention(nn.Module):
    """A vision transformer of one layer; the scale and the positions are buffers."""

    scale: Tensor
    positions: Tensor

    def __init__(self, frames: FrameShape) -> None:
        super().__init__()
        side = frames.size // 12
        self.patches = nn.Conv2d(frames.planes, 32, 12, 12)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mix = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.register_buffer("scale", torch.tensor(1 / 255))
        self.register_buffer("positions", torch.linspace(-1, 1, side * side * 32).view(1, -1, 32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x * self.scale).flatten(2).transpose(1, 2) + self.positions
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return (x + self.mix(x)).mean(1)


class Tied(nn.Module):
    """Tied, frozen, unused and scalar parameters."""

    def __init__(self, frames: FrameShape) -> None:
        super().__init__()
        self.first = nn.Conv2d(frames.planes, 8, 8, 8)
        self.one = nn.Conv2d(8, 8, 1)
        self.two = nn.Conv2d(8, 8, 1)
        self.two.weight = self.one.weight
        self.frozen = nn.Parameter(torch.randn(8, 8, 1, 1), requires_grad=False)
        self.unused = nn.Linear(3, 3)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(self.one(self.first(x / 255)).relu()).relu()
        return (F.conv2d(x, self.frozen) * self.temperature).flatten(1)


class Linear(nn.Module):
    """A base of networks with a fault: one layer, whose `change` changes its features."""

    def __init__(self, frames: FrameShape) -> None:
        super().__init__()
        self.layer = nn.Linear(frames.planes * frames.size**2, 16)

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x.flatten(1) / 255))

    def change(self, x: Tensor) -> Any:
        return x


class Frozen(Linear):
    """Nothing is learned here: the hidden layer reads random features."""

    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.requires_grad_(False)


class BatchNorm(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.norm = nn.BatchNorm1d(16)

    def change(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed


class Centered(Linear):
    def change(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Dropout(Linear):
    def change(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.1)


class Counting(Linear):
    calls = itertools.count()

    def change(self, x: Tensor) -> Tensor:
        return x + 1e-3 * next(self.calls)


class Spectral(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.layer = nn.utils.parametrizations.spectral_norm(self.layer)


class Running(Linear):
    mean: Tensor

    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.register_buffer("mean", torch.zeros(16))

    def change(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.detach().float().mean(0), 0.1)
        return x


class DrawnBuffer(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.register_buffer("noise", torch.randn(16))


class DrawnByNumpy(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.scale = nn.Parameter(torch.tensor(np.random.default_rng().standard_normal(16), dtype=torch.float32))


class Double(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.layer.double()


class Lazy(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        self.layer = nn.LazyLinear(16)


class NoHidden(Linear):
    hidden = 0


class Maps(Linear):
    def change(self, x: Tensor) -> Tensor:
        return x[:, :, None]


class Pair(Linear):
    def change(self, x: Tensor) -> tuple[Tensor, None]:
        return x, None


class Infinite(Linear):
    def change(self, x: Tensor) -> Tensor:
        return x / 0


class Raising(Linear):
    def change(self, x: Tensor) -> Tensor:
        return x @ x


class NotBuilt(Linear):
    def __init__(self, frames: FrameShape) -> None:
        super().__init__(frames)
        raise RuntimeError("no such\nsize.")


class FixedBatch(Linear):
    def change(self, x: Tensor) -> Tensor:
        return x.view(8, 16)


class Printing(Linear):
    def change(self, x: Tensor) -> Tensor:
        os.write(1, b"{}\n")
        return x


class Ending(Linear):
    def change(self, x: Tensor) -> Tensor:
        os._exit(3)


class Crashing(Linear):
    def change(self, x: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        return x


class Hanging(Linear):
    def change(self, x: Tensor) -> Tensor:
        time.sleep(3_600)
        return x


def function(frames: FrameShape) -> nn.Module:
    return Linear(frames)
