"""Draws of fresh parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from shared.prng import Stream, bits, philox

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


class Draws:
    """First values by a seed, uniform or orthogonal.

    Orthogonal weights have orthonormal rows or columns, times a gain (Saxe et al. 2014), and biases are 0. Gains are
    those of OpenAI Baselines: sqrt(2) for hidden layers, and in an actor-critic 0.01 for the logits and 1 for the
    value, whose rows are orthogonal by themselves. Action values have 1, as the last layer of purejaxql's PQN has on
    average; CleanRL's PQN has sqrt(2).
    """

    def __init__(self, seed: int, *, orthogonal: bool) -> None:
        self._seed, self._orthogonal = seed, orthogonal
        self._uniform = torch.Generator().manual_seed(bits(seed, Stream.NETWORK) >> 1)
        self._vectors = torch.Generator().manual_seed(bits(seed, Stream.POWER_ITERATION) >> 1)

    def fill(self, parameter: Tensor, name: str, bound: float, gains: Sequence[tuple[int, float]] = ()) -> None:
        """Draw a parameter: uniform in +-`bound`, or orthogonal. `gains`: numbers of rows, each with its gain.

        Orthogonal weights are a function of seed and name; uniform ones depend on what was drawn before.
        """
        if not self._orthogonal:
            drawn = torch.rand(parameter.numel(), generator=self._uniform)
            parameter.copy_(((drawn * 2.0 - 1.0) * bound).view(parameter.shape))
        elif parameter.dim() == 1:
            parameter.zero_()
        else:
            generator = philox(bits(self._seed, Stream.NETWORK), crc32(name.encode()))
            columns = parameter[0].numel()
            matrix = np.concatenate([gain * _orthonormal(generator, count, columns) for count, gain in gains])
            parameter.copy_(torch.from_numpy(matrix.astype(np.float32)).view(parameter.shape))

    def fill_singular_vector(self, u: Tensor, weight: Tensor) -> None:
        """Estimate the left singular vector of the largest singular value, as PyTorch's `spectral_norm` begins."""
        exact, found = weight.flatten(1).double(), torch.randn(u.shape, generator=self._vectors).double()
        for _ in range(POWER_ITERATIONS):
            found = F.normalize(exact @ (exact.t() @ found), dim=0)
        u.copy_(found)


def _orthonormal(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """float64[rows, columns] with orthonormal rows, or columns where these are fewer, drawn uniformly.

    The orthogonal factor of a normal matrix is uniform when its signs are fixed by the diagonal of the other factor.
    """
    factor, triangle = np.linalg.qr(generator.standard_normal((max(rows, columns), min(rows, columns))))
    factor *= np.sign(np.diag(triangle))
    return factor if rows >= columns else factor.T
