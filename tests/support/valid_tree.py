"""Invariants of a tree of priorities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from learner.replay.priorities import Priorities
from learner.replay.sum_tree import BITS


def check_valid(priorities: Priorities) -> None:
    """Raise `AssertionError` unless weights are in their range and every parent is the sum of its children."""
    levels, places = priorities._levels, priorities.places
    assert ((levels[0] >= 0) & (levels[0] <= priorities._maximum)).all(), "a weight is negative or above the maximum"
    assert not levels[0][places:].any(), "there is weight behind the last place"
    for children, parents in pairwise(levels):
        sums = children.reshape(-1, 1 << BITS).sum(1)
        assert np.array_equal(sums, parents[: len(sums)]), "a parent is not the sum of its children"
        assert not parents[len(sums) :].any(), "there is weight without a place"
