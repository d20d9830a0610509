"""Returns over several steps, in a compiled loop: the part of a TD target that needs no network."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class End(IntEnum):
    """Effect of a tick on the return that passes through it."""

    NONE = 0
    """The return continues."""
    TERMINAL = 1
    """The return ends, without a value of the next state."""
    TRUNCATED = 2
    """No later reward counts, but the value of the last observation does."""


class Return(NamedTuple):
    """Returns of n transitions, to which `discount` times the value `length` ticks after the state is added."""

    value: NDArray[np.float32]
    """R float32[n]."""
    discount: NDArray[np.float32]
    """gamma^length float32[n], or 0 where the return ended."""
    length: NDArray[np.int64]
    """Rewards in the sum int64[n], 1 to k."""


def n_step(reward: NDArray[np.floating], ends: NDArray[np.integer], discount: float) -> Return:
    """R = sum_i gamma^i r_(t+i), i = 0 ... length - 1 (Hessel et al. 2018, "Multi-step learning").

    Sums and powers are made in float64, from the first tick to the last, and rounded once; so one step gives r and
    gamma themselves. What stands behind an end is never looked at.

    Args:
        reward: r_t ... r_(t+k-1) [n, k], k >= 1.
        ends: the `End` of the same ticks [n, k].
        discount: gamma.
    """
    n = len(reward)
    returns = Return(np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.int64))
    _add_up(reward, ends, discount, *returns)
    return returns


@njit(error_model="numpy", cache=True, nogil=True)
def _add_up(reward, ends, discount, value, bootstrap, length):  # type: ignore[no-untyped-def]
    """Write the returns; arguments as of `n_step` and fields of `Return`, the latter filled with zeros."""
    for row in range(len(reward)):
        total, gamma, end = 0.0, 1.0, End.NONE.value
        while end == End.NONE.value and length[row] < reward.shape[1]:
            total += gamma * reward[row, length[row]]
            end = ends[row, length[row]]
            gamma *= discount
            length[row] += 1
        value[row], bootstrap[row] = total, 0.0 if end == End.TERMINAL.value else gamma
