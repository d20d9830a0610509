"""Counter-based randomness: a pure function of a seed and counters, never "the next number".

So every process that plays or repeats a tick draws the same numbers (Salmon et al. 2011,
"Parallel random numbers: as easy as 1, 2, 3", for the idea). The mixing function is the finalizer of
SplitMix64 (Steele et al. 2014), applied once for each counter.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
SPLITMIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Increment of the state of SplitMix64 for every number, and the two factors of its finalizer."""
_COUNTER = 0xD1342543DE82EF95
"""Factor of a counter."""


class Stream(IntEnum):
    """Purpose of a draw; it keeps the draws of different purposes apart."""

    EXPLORE = 1
    EXPLORE_ACTION = 2
    STICKY = 3
    NOOPS = 4
    ENV_SEED = 5
    REPLAY = 6
    NETWORK = 7
    EVALUATION = 8
    FRACTIONS = 9
    NOISE = 10
    POWER_ITERATION = 11
    NOISE_SIGNS = 12
    POLICY = 13
    MINIBATCH = 14
    WORKER_EPSILON = 15
    AUGMENT = 16


def bits(seed: int, stream: Stream, *counters: int) -> int:
    """64 uniform bits as an int in [0, 2**64), the same for the same arguments on every machine."""
    golden, first, second = SPLITMIX
    z = seed & _MASK
    for counter in (int(stream), *counters):
        z = (z + golden + counter * _COUNTER) & _MASK
        z = ((z ^ (z >> 30)) * first) & _MASK
        z = ((z ^ (z >> 27)) * second) & _MASK
        z ^= z >> 31
    return z


def philox(*key: int) -> np.random.Generator:
    """Generator of Philox counters: a function of its key of two numbers."""
    return np.random.Generator(np.random.Philox(key=list(key)))


def uniform(seed: int, stream: Stream, *counters: int) -> float:
    """A float in [0, 1), 53 bits fine."""
    return (bits(seed, stream, *counters) >> 11) * 2.0**-53


def uniforms(last: NDArray[np.int64], seed: int, stream: Stream, *counters: int) -> NDArray[np.float64]:
    """Floats as of `uniform(seed, stream, *counters, last[k])` for each k, in one pass."""
    golden, first, second = SPLITMIX
    z = np.uint64((bits(seed, stream, *counters) + golden) & _MASK) + last.astype(np.uint64) * np.uint64(_COUNTER)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(first)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(second)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def randint(limit: int, seed: int, stream: Stream, *counters: int) -> int:
    """An int in [0, limit), by multiplication; the bias is under limit / 2**64."""
    return (bits(seed, stream, *counters) * limit) >> 64
