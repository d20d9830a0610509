"""The models there are, and a check of the arithmetic that they are given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from learner import network as plain
from learner.aside import Aside
from learner.gather import GRID
from learner.initial import initial_parameters
from learner.model import Beside, Model
from learner.modular import ModularModel
from shared.config import STACK, ConfigError
from shared.parameters import Network, parameters_of

WRONG = 0.4
"""Relative error that rounding does not explain: it reaches 0.15 in gradients of fresh networks, a wrong kernel 0.5."""


class PlainModel(plain.Weights):
    """A plain network, with passes written out."""

    def __init__(self, network: Network, device: torch.device, precision: str) -> None:
        super().__init__(plain.Architecture(network), device, precision)
        self.network = network
        self.cut = self.architecture.convolution_parameters
        self.to_inner, self.to_outer = self.architecture.to_inner, self.architecture.to_outer
        self.refresh = self.scale_first
        self.noise = 0

    def forward(
        self,
        blocks: Tensor,
        first: int,
        beside: Beside,
        settle: Callable[[], None] | None = None,
        *,
        learns: bool = False,
    ) -> plain.Pass:
        """See `Model`; nothing beside frames is looked at."""
        return plain.forward(self, plain.network_input(blocks, first, self.dtype), settle)

    def gradient_into(self, flat: Tensor) -> None:
        """See `Model`."""
        self._gradient = self.architecture.views(flat)

    def backward(self, past: plain.Pass, gradient: Tensor, aside: Aside) -> None:
        """See `Model`."""
        plain.backward(self, past, gradient, self._gradient, aside)


def model_of(network: Network, device: torch.device, precision: str) -> Model:
    """The model of a network, with parameters that are still to be set."""
    return PlainModel(network, device, precision) if network.plain else ModularModel(network, device, precision)


def check_arithmetic(network: Network, device: torch.device, precision: str, batch: int, *, learns: bool) -> None:
    """Compare this machine's bfloat16 with its float32 in a batch of the size that will be used: forward, and backward
    where it `learns`.

    Libraries choose kernels by processor and shape, and some have been wrong without a word (oneDNN 3.12 with AMX:
    convolutions of 16 channels with stride 4).

    Raises:
        ConfigError: what bfloat16 gives is further from float32 than rounding explains.
    """
    if precision != "bf16":
        return
    parameters = initial_parameters(network, 0)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (batch, GRID, GRID, STACK * plain.CELL), generator=generator, dtype=torch.uint8)
    fractions = torch.rand(batch, 2, generator=generator).to(device) if network.method == "iqn" else None
    atoms = 2 if fractions is not None else network.atoms
    gradient = torch.randn(batch, network.actions, atoms, generator=generator).to(device)
    results = []
    for each in ("fp32", "bf16"):
        model = model_of(network, device, each)
        model.to_inner(parameters, model.master)
        model.cast()
        vector = torch.zeros_like(model.shadow)
        model.gradient_into(vector)
        past = model.forward(pixels.to(device), 0, Beside(fractions), learns=learns)
        results.append([past.outputs.detach().numpy(force=True)])
        if learns:
            model.backward(past, gradient, Aside())
            outer = np.zeros(len(vector), np.float32)
            model.to_outer(vector.float(), outer)
            results[-1] += parameters_of(network).split(outer).values()
    for exact, rounded in zip(*results, strict=True):
        off = float(np.linalg.norm(rounded - exact)) / max(float(np.linalg.norm(exact)), 1e-30)
        if not off < WRONG:
            raise ConfigError(
                f"On {device}, bfloat16 gives network {network} values that are {off:.0%} off: a kernel of PyTorch "
                f"{torch.__version__} is wrong on this processor. Use --precision fp32."
            )
