"""Proportional prioritized replay (Schaul et al. 2016, section 3.3): place i is drawn with P(i) = p_i^alpha / sum.

A place is a transition of the window: `(tick % window_ticks) * envs + env`. Its *weight* p^alpha is kept in fixed
point, a whole number of `QUANTUM`, and so are all sums. Whole numbers add up the same in any order and lose nothing:
the least weight counts among millions of large ones, and a target below the total ends at a place with weight.

A greater weight than `largest_weight` counts as `largest_weight`.

The tree is on the CPU, whatever device learns, so a seed gives the same samples everywhere. The CPU is fast enough: the
errors of a chunk come back during the next chunk, and a draw takes far less time than the updates of a chunk.

Parents are recomputed from their children, never adjusted. If a call names a place twice, the last value stays. A place
of weight 0 (empty, or not to be sampled) is never drawn, and only `admit` gives it weight.

The sums are levels of one flat vector: the leaves, then sums of as many neighbors as the fan-out says, up to the
total. Each level but the total is padded with zeros to a multiple of the fan-out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learner.replay.sum_tree import BITS, QUANTUM, compute_weights, descend, refresh, set_weights

FIRST_MAXIMUM = 2**24
"""The running maximum before any error is known, in quanta: p = 1 (Schaul et al. 2016, algorithm 1)."""


def largest_weight(transitions: int) -> int:
    """The largest weight, in quanta, of so many transitions: a power of two with which their total is at most 2^62.

    2^38 quanta, a weight of 16,384, with `MOST_PRIORITIES`; 2^42, 262,144, with a million.
    """
    return 1 << (62 - (transitions - 1).bit_length())


class Priorities:
    """Weights of the places of a window, all zero at first.

    Attributes:
        places: the number of places.
        state_size: length of the vector of `store` and `load`.
    """

    def __init__(self, *, window_ticks: int, envs: int, alpha: float) -> None:
        """A tree for `window_ticks * envs` transitions; `Algorithm.priority_exponent` explains alpha."""
        self.places = window_ticks * envs
        self.state_size = self.places + 1
        self._window_ticks, self._envs, self._alpha = window_ticks, envs, alpha
        self._most = largest_weight(self.places)
        lengths = [_padded(self.places)]
        while lengths[-1] > 1:
            parents = lengths[-1] >> BITS
            lengths.append(_padded(parents) if parents > 1 else 1)
        offsets = np.cumsum([0, *lengths])
        self._sums = np.zeros(sum(lengths), np.int64)
        self._levels = np.split(self._sums, offsets[1:-1])
        self._leaves = self._levels[0][: self.places]
        self._maximum = np.full(1, FIRST_MAXIMUM, np.int64)
        self._tree = self._sums, offsets[:-1]

    @property
    def empty(self) -> bool:
        """True if nothing has weight."""
        return not self._sums[-1]

    def clear(self) -> None:
        """Begin anew."""
        self._sums[:] = 0
        self._maximum[:] = FIRST_MAXIMUM

    def admit(self, first_tick: int, samplable: NDArray[np.bool_]) -> None:
        """Ticks from `first_tick` on, bool[ticks, envs], enter with the running maximum, or 0 where not samplable.

        What lay in their places is gone. Raises `ValueError` for more ticks than the window has.
        """
        for first, last, begin in self._pieces(first_tick, len(samplable)):
            np.multiply(samplable[begin:].reshape(-1)[: last - first], self._maximum, out=self._leaves[first:last])
            refresh(*self._tree, first, last)

    def forget(self, first_tick: int, ticks: int) -> None:
        """These ticks are no longer sampled. Raises `ValueError` for more ticks than the window has."""
        for first, last, _ in self._pieces(first_tick, ticks):
            self._leaves[first:last] = 0
            refresh(*self._tree, first, last)

    def sample(self, uniform: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw batches by weight, each stratified (Schaul et al. 2016, appendix B.2.1). Something has weight.

        Args:
            uniform: float64[count, batch] in [0, 1). Draw i of a batch takes what lies at (i + uniform) / batch of the
                total.

        Returns:
            leaves int64[count * batch], and how probable each was in a draw from the whole, P(i), float32.
        """
        targets, tree_index = np.empty((2, uniform.size), np.int64)
        probability = np.empty(uniform.size, np.float32)
        descend(*self._tree, uniform, targets, tree_index, probability)
        return tree_index, probability

    def update(self, tree_index: NDArray[np.int64], td_error_abs: NDArray[np.float32]) -> None:
        """Give leaves int64[n] the weight (|delta| + epsilon)^alpha of |delta| float32[n]; the maximum follows.

        Raises:
            ValueError: an error is negative or not finite; nothing is changed then.
        """
        weights = np.empty(len(tree_index), np.int64)
        wrong = compute_weights(td_error_abs, self._alpha, self._most, weights)
        if wrong >= 0:
            raise ValueError(
                f"The TD error of place {int(tree_index[wrong])} has the size {td_error_abs[wrong]}; a priority needs "
                "one that is finite and not negative."
            )
        set_weights(*self._tree, tree_index, weights, self._maximum)

    def tick_env(self, tree_index: NDArray[np.int64], window_end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tick and env, int64 each, of leaves of the window that ends before tick `window_end`."""
        last = window_end - 1
        slot, env = np.divmod(tree_index, self._envs)
        return last - (last - slot) % self._window_ticks, env

    def store(self, out: NDArray[np.float32]) -> None:
        """Write float32[state_size]: the weights by place, and last the running maximum.

        Nothing is rounded: a weight comes from a float32, and has no more than its 24 digits.
        """
        out[:-1] = self._leaves
        out[-1:] = self._maximum
        out *= np.float32(QUANTUM)

    def load(self, state: NDArray[np.float32]) -> None:
        """Take over what `store` wrote.

        Raises:
            ValueError: it holds something that is no weight.
        """
        quanta = state.astype(np.float64) / QUANTUM
        wrong = ~((quanta >= 0) & (quanta <= quanta[-1]) & (quanta == np.rint(quanta)))
        wrong[-1] |= not 1 <= quanta[-1] <= self._most
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(f"Number {place} of the state of priorities is {state[place]}, which is not a weight.")
        self._leaves[:] = quanta[:-1]
        self._maximum[:] = quanta[-1:]
        refresh(*self._tree, 0, self.places)

    def _pieces(self, first_tick: int, ticks: int) -> list[tuple[int, int, int]]:
        """The places of ticks as one or two ranges [first, last), each with the number of ticks before it."""
        if ticks > self._window_ticks:
            raise ValueError(f"{ticks} ticks do not fit into a window of {self._window_ticks}.")
        slot = first_tick % self._window_ticks
        before_wrap = min(ticks, self._window_ticks - slot)
        pieces = [(slot, slot + before_wrap, 0), (0, ticks - before_wrap, before_wrap)]
        return [(first * self._envs, last * self._envs, begin) for first, last, begin in pieces if first < last]


def _padded(length: int) -> int:
    return -(-length >> BITS) << BITS
