"""Networks of a user for tests: those that Ringside takes, and one for each fault that the look refuses."""

import itertools
import os
import random
import signal
from typing import Any

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


def starve(device: torch.device) -> None:
    raise torch.AcceleratorError(f"CUDA error: out of memory on {device}\nCompile with `TORCH_USE_CUDA_DSA`")


class Linear(nn.Module):
    """The base of networks with a fault: one layer. `prepare` may change it, and `change` its features."""

    mean: Tensor

    def __init__(self, frames: FrameShape) -> None:
        super().__init__()
        self.layer: nn.Module = nn.Linear(frames.planes * frames.size**2, 16)
        self.prepare()

    def prepare(self) -> Any:
        """Change the layer, or add one."""

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x.flatten(1) / 255))

    def change(self, x: Tensor) -> Any:
        return x


def fault(name: str, **members: Any) -> type[Linear]:
    return type(name, (Linear,), {"__module__": __name__, **members})


numbers = itertools.count()

Frozen = fault("Frozen", prepare=lambda self: self.requires_grad_(False))
BatchNorm = fault("BatchNorm", prepare=lambda self: self.add_module("norm", nn.BatchNorm1d(16)))
BatchNorm.change = lambda self, x: self.norm(x)
Centered = fault("Centered", change=lambda self, x: x - x.mean(0))
Dropout = fault("Dropout", change=lambda self, x: F.dropout(x, 0.1))
Counting = fault("Counting", change=lambda self, x: x + 1e-3 * next(numbers))
Spectral = fault("Spectral", prepare=lambda self: nn.utils.parametrizations.spectral_norm(self.layer))
Running = fault("Running", prepare=lambda self: self.register_buffer("mean", torch.zeros(16)))
Running.change = lambda self, x: x + 0 * self.mean.lerp_(x.detach().float().mean(0), 0.1)
DrawnBuffer = fault("DrawnBuffer", prepare=lambda self: self.register_buffer("noise", torch.randn(16)))
DrawnElsewhere = fault("DrawnElsewhere")
DrawnElsewhere.prepare = lambda self: self.register_parameter("scale", nn.Parameter(torch.rand(4) * random.random()))
Double = fault("Double", prepare=lambda self: self.double())
Lazy = fault("Lazy", prepare=lambda self: self.add_module("layer", nn.LazyLinear(16)))
NoHidden = fault("NoHidden", prepare=lambda self: None, hidden=0)
NotBuilt = fault("NotBuilt", prepare=lambda self: {}["no such\nsize."])
Maps = fault("Maps", change=lambda self, x: x[:, :, None])
Pair = fault("Pair", change=lambda self, x: (x, None))
Infinite = fault("Infinite", change=lambda self, x: x / 0)
Detached = fault("Detached", change=lambda self, x: x.detach())
Caching = fault("Caching", change=lambda self, x: x * self.__dict__.setdefault("cache", torch.ones(16)))
Raising = fault("Raising", change=lambda self, x: x @ x)
FixedBatch = fault("FixedBatch", change=lambda self, x: x.view(8, 16))
Starving = fault("Starving", change=lambda self, x: starve(x.device))
Printing = fault("Printing", change=lambda self, x: x * bool(os.write(1, b"{}\n")))
Ending = fault("Ending", change=lambda self, x: os._exit(3))
Crashing = fault("Crashing", change=lambda self, x: os.kill(os.getpid(), signal.SIGSEGV))
Hanging = fault("Hanging", change=lambda self, x: signal.pause())
