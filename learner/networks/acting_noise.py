"""Noise of noisy networks when they act: a pure function of seed, tick and env.

Every env has separate noise. With the same noise for all, emulators that begin alike would play the same game, and a
batch would hold many copies of one transition.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shared.prng import SPLITMIX, Stream, bits, philox

_STEP, _FIRST, _SECOND = (np.uint64(constant) for constant in SPLITMIX)


def acting_noise(seed: int, count: int, tick: int, envs: NDArray[np.int64]) -> NDArray[np.float32]:
    """Normal numbers float32[n, count] for `envs` int64[n] in a tick.

    Magnitudes are drawn once a tick, signs for every env. Each env sees normal noise, since the normal distribution is
    symmetric, and the noise of two envs is uncorrelated (Wen et al. 2018, "Flipout", section 3.1). This takes a
    twentieth of the time of separate draws.
    """
    normal = philox(bits(seed, Stream.NOISE), tick).standard_normal(count, np.float32)
    keys = np.array([bits(seed, Stream.NOISE_SIGNS, tick, env) for env in envs.tolist()], np.uint64)
    drawn = np.empty((len(envs), count), np.float32)
    _signed(normal, keys, drawn)
    return drawn


@njit(cache=True, nogil=True)
def _signed(normal, keys, out):  # type: ignore[no-untyped-def]
    """Write `normal` with random signs, by SplitMix64 (Steele et al. 2014) for every row, begun at its key."""
    for i in range(keys.size):
        state, word = keys[i], np.uint64(0)
        for j in range(normal.size):
            if j % 64 == 0:
                state += _STEP
                word = (state ^ (state >> np.uint64(30))) * _FIRST
                word = (word ^ (word >> np.uint64(27))) * _SECOND
                word ^= word >> np.uint64(31)
            out[i, j] = normal[j] * (np.float32(1) - np.float32(2) * np.float32(word & np.uint64(1)))
            word >>= np.uint64(1)
