"""Fresh parameters."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from shared.config.sections import Initial
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from shared.prng import Stream, bits

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of orthogonal weights before a ReLU."""
POLICY_GAIN = 0.01
"""Gain of the logits, with which a policy begins nearly uniform (OpenAI Baselines)."""
LSTM_GAIN = 1.0
"""Gain of an LSTM, whose biases begin at 0 (CleanRL's ppo_atari_lstm)."""
VALUE_GAIN = 1.0
"""Gain of the state's value and of action values."""
POWER_ITERATIONS = 15
"""Iterations from a random vector, before the first pass."""


def initial_parameters(network: Network, seed: int, initial: Initial = "auto") -> NDArray[np.float32]:
    """Fresh parameters float32[P], drawn on the CPU, so that all devices begin alike.

    Args:
        initial: torch: weights and biases uniform in +-1/sqrt(fan-in), as PyTorch's layers begin, and those of Torch7,
            in which the DQN of 2015 was written; orthogonal: see `_orthogonal`; auto: orthogonal for actor-critics,
            else torch.

    The sigma of noisy layers is sigma_0/sqrt(fan-in) (Fortunato et al. 2018, section 3.2).
    """
    orthogonal = initial == "orthogonal" or (initial == "auto" and network.value_output)
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
            if name.startswith("lstm."):
                bound = 1.0 / math.sqrt(network.recurrent)
            if orthogonal:
                pieces.append(_orthogonal(network, name, shape, seed))
            else:
                pieces.append((torch.rand(count, generator=generator) * 2.0 - 1.0) * bound)
    return torch.cat(pieces).numpy()


def _orthogonal(network: Network, name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Weights with orthonormal rows or columns, times a gain (Saxe et al. 2014), a function of seed and name; biases 0.

    Gains are those of OpenAI Baselines: sqrt(2) for hidden layers, and in an actor-critic 0.01 for the logits and 1 for
    the value, whose rows are orthogonal by themselves. Action values have 1, as the last layer of purejaxql's PQN has
    on average; CleanRL's PQN has sqrt(2).
    """
    if name.rpartition(".")[2].startswith("bias"):
        return torch.zeros(shape)
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.NETWORK), crc32(name.encode())]))
    rows, columns = shape[0], math.prod(shape[1:])
    parts = [(rows, HIDDEN_GAIN)]
    if name == "heads.weight":
        parts = [(network.actions, POLICY_GAIN), (1, VALUE_GAIN)]
    elif name in ("value.weight", "advantage.weight"):
        parts = [(rows, VALUE_GAIN)]
    elif name.startswith("lstm."):
        parts = [(rows, LSTM_GAIN)]
    matrix = np.concatenate([gain * _orthonormal(generator, count, columns) for count, gain in parts])
    return torch.from_numpy(matrix.astype(np.float32).reshape(-1))


def _orthonormal(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """float64[rows, columns] with orthonormal rows, or columns where these are fewer, drawn uniformly.

    The orthogonal factor of a normal matrix is uniform when its signs are fixed by the diagonal of the other factor.
    """
    factor, triangle = np.linalg.qr(generator.standard_normal((max(rows, columns), min(rows, columns))))
    factor *= np.sign(np.diag(triangle))
    return factor if rows >= columns else factor.T


def _singular_vector(matrix: Tensor, u: Tensor) -> Tensor:
    """An estimate of the left singular vector of the largest singular value, as PyTorch's `spectral_norm` begins."""
    exact, u = matrix.double(), u.double()
    for _ in range(POWER_ITERATIONS):
        u = F.normalize(exact @ (exact.t() @ u), dim=0)
    return u.float()
