"""Weights of priorities, and the compiled loops of their sum tree on a CPU. See learner/replay/priorities.py.

The loops work on `sums` int64, all levels in sequence, and `offsets` int64[levels], the start of each level.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EPSILON = 1e-6
"""Added to |delta|, so that a transition without error is drawn again one day (the value of OpenAI Baselines)."""
QUANTUM = 2.0**-24
"""Unit of weights, so that their sums are exact. A float32 weight of 0.5 or more is a multiple; a smaller one is
rounded, to one unit at least."""
BITS = 3
"""log2 of the fan-out: siblings share a line of the CPU's cache."""

_LINE = 1 << BITS


@njit(error_model="numpy", cache=True, nogil=True)
def descend(sums, offsets, uniform, targets, tree_index, probability):  # type: ignore[no-untyped-def]
    """Draw as `Priorities.sample` says; the last three arguments are written.

    Level by level, so that the CPU fetches the nodes of many draws at once, and without branches, since which child it
    is cannot be prefetched.
    """
    count, batch = uniform.shape
    total = sums[-1]
    whole, part = np.float64(total), 1.0 / batch
    for n in range(count * batch):
        i = n % batch
        targets[n] = min(np.int64((uniform[n // batch, i] + i) * part * whole), total - 1)
        tree_index[n] = 0
    for level in range(len(offsets) - 2, -1, -1):
        for n in range(count * batch):
            target = targets[n]
            child = offsets[level] + (tree_index[n] << BITS)
            for bit in range(BITS - 1, -1, -1):  # the left or the right half of those that are left
                left = np.int64(0)
                for k in range(1 << bit):
                    left += sums[child + k]
                passed = np.int64(left <= target)
                target -= left * passed
                child += passed << bit
            targets[n] = target
            tree_index[n] = child - offsets[level]
    for n in range(count * batch):
        probability[n] = np.float64(sums[tree_index[n]]) / whole


@njit(error_model="numpy", cache=True, nogil=True)
def compute_weights(errors, alpha, most, weights):  # type: ignore[no-untyped-def]
    """Write the weights of |delta|, `most` at most; return the index of the first invalid one, or -1.

    A |delta| is invalid if it is negative or not finite.
    """
    for i in range(errors.size):
        error = np.float64(errors[i])
        if not 0.0 <= error < np.inf:
            return i
        power = np.float64(np.float32((error + EPSILON) ** alpha))
        weights[i] = max(1, np.int64(min(np.rint(power / QUANTUM), np.float64(most))))
    return -1


@njit(error_model="numpy", cache=True, nogil=True)
def set_weights(sums, offsets, tree_index, weights, maximum):  # type: ignore[no-untyped-def]
    """Write weights in their order, where there was one, and recompute what is above them, level by level."""
    for i in range(tree_index.size):
        maximum[0] = max(maximum[0], weights[i])
        if sums[tree_index[i]]:
            sums[tree_index[i]] = weights[i]
    for level in range(1, len(offsets)):
        former = -1
        for i in range(tree_index.size):
            node = tree_index[i] >> (BITS * level)
            if node != former:  # neighbors in a batch often share parents: it is drawn in order
                _recompute(sums, offsets, level, node)
            former = node


@njit(error_model="numpy", cache=True, nogil=True)
def refresh(sums, offsets, first, last):  # type: ignore[no-untyped-def]
    """Recompute all that is above the leaves [first, last)."""
    for level in range(1, len(offsets)):
        shift = BITS * level
        for node in range(first >> shift, ((last - 1) >> shift) + 1):
            _recompute(sums, offsets, level, node)


@njit(inline="always", error_model="numpy")
def _recompute(sums, offsets, level, node):  # type: ignore[no-untyped-def]
    """One parent from its children."""
    first = offsets[level - 1] + (node << BITS)
    whole = np.int64(0)
    for k in range(_LINE):
        whole += sums[first + k]
    sums[offsets[level] + node] = whole
