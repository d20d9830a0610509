"""Fresh parameters."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from shared.network_spec import Network, parameters_of
from shared.prng import Stream, bits

POLICY_GAIN = 0.01
"""Gain of the logits, with which a policy begins nearly uniform (OpenAI Baselines)."""
POWER_ITERATIONS = 15
"""Iterations from a random vector, before the first pass."""


def initial_parameters(network: Network, seed: int) -> NDArray[np.float32]:
    """Fresh parameters float32[P]: weights and biases uniform in +-1/sqrt(fan-in), as PyTorch's layers begin.

    Torch7, in which the DQN of 2015 was written, begins its layers the same way; so do noisy layers, whose sigma is
    sigma_0/sqrt(fan-in) (Fortunato et al. 2018, section 3.2). Drawn on the CPU, so that all devices begin alike.
    """
    if network.value_output:
        return _orthogonal_parameters(network, seed)
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
            pieces.append(_singular_vector(pieces[-2].view(count, -1), torch.randn(count, generator=vectors)))
        else:
            bound = 1.0 / math.sqrt(math.prod(shape[1:])) if kind == "weight" else bound
            pieces.append((torch.rand(count, generator=generator) * 2.0 - 1.0) * bound)
    return torch.cat(pieces).numpy()


def _orthogonal_parameters(network: Network, seed: int) -> NDArray[np.float32]:
    """Weights with orthonormal rows or columns, times a gain (Saxe et al. 2014); biases 0. That of actor-critics.

    Gains are sqrt(2), 0.01 for the logits of the policy and 1 for the value, as in OpenAI Baselines. The orthogonal
    factor of a normal matrix has its signs fixed by the diagonal of the other factor, so that it is drawn uniformly.
    """
    generator = np.random.Generator(np.random.Philox(key=bits(seed, Stream.NETWORK)))
    pieces = []
    for name, shape in parameters_of(network).shapes:
        if not name.endswith(".weight") or "_norm." in name:
            pieces.append(np.full(math.prod(shape), float(name.endswith(".weight"))))
            continue
        rows, columns = shape[0], math.prod(shape[1:])
        normal = generator.standard_normal((max(rows, columns), min(rows, columns)))
        factor, triangle = np.linalg.qr(normal)
        factor *= np.sign(np.diag(triangle))
        matrix = (factor if rows >= columns else factor.T) * math.sqrt(2.0)
        if name == f"{network.head}.weight":  # each output is a head with a gain of its own
            gains = np.full(rows, POLICY_GAIN)
            gains[-1] = 1.0
            matrix = matrix / math.sqrt(2.0) * gains[:, None]
        pieces.append(matrix.reshape(-1))
    return np.concatenate(pieces).astype(np.float32)


def _singular_vector(matrix: Tensor, u: Tensor) -> Tensor:
    """Near the left singular vector of the largest singular value; so begins PyTorch's `spectral_norm`, too."""
    exact, u = matrix.double(), u.double()
    for _ in range(POWER_ITERATIONS):
        u = F.normalize(exact @ (exact.t() @ u), dim=0)
    return u.float()
