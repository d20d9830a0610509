"""Fresh parameters."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from shared.parameters import Network, parameters_of
from shared.random import Stream, bits


def initial_parameters(network: Network, seed: int) -> NDArray[np.float32]:
    """Fresh parameters float32[P]: weights and biases uniform in +-1/sqrt(fan-in), as PyTorch's layers begin.

    Torch7, in which the DQN of 2015 was written, begins its layers the same way; so do noisy layers, whose sigma is
    sigma_0/sqrt(fan-in) (Fortunato et al. 2018, section 3.2). Drawn on the CPU, so that all devices begin alike.
    """
    generator = torch.Generator().manual_seed(bits(seed, Stream.NETWORK) >> 1)
    vectors = torch.Generator().manual_seed(bits(seed, Stream.POWER_ITERATION) >> 1)
    pieces, bound = [], 0.0
    for name, shape in parameters_of(network).shapes:
        kind, count = name.rpartition(".")[2], math.prod(shape)
        if "_norm." in name:
            pieces.append(torch.full((count,), float(kind == "weight")))
        elif kind in ("weight_sigma", "bias_sigma"):
            pieces.append(torch.full((count,), network.noisy * bound))
        elif kind == "u":
            vector = torch.randn(count, generator=vectors)
            pieces.append(vector / vector.norm())
        else:
            bound = 1.0 / math.sqrt(math.prod(shape[1:])) if kind == "weight" else bound
            pieces.append((torch.rand(count, generator=generator) * 2.0 - 1.0) * bound)
    return torch.cat(pieces).numpy()
