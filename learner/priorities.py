"""Proportional prioritised replay (Schaul et al. 2016, section 3.3): place i is drawn with P(i) = p_i^alpha / sum.

A place is a transition of the window: `(tick % window_ticks) * envs + env`. Its *weight* p^alpha is kept in fixed
point, a whole number of `QUANTUM`, and so are all sums. Whole numbers add up the same in any order and lose nothing: a
tree of any shape, compiled for the CPU or in PyTorch's operations on a GPU, draws the same places from the same
weights, the least weight counts among millions of large ones, and a target below the total ends at a place with weight.

Parents are recomputed from their children, never adjusted, and of a place named twice the last value stays. A place of
weight 0 (empty, or not to be sampled) is never drawn, and only `admit` gives it weight.

The sums are levels of one flat vector: the leaves, then sums of as many neighbours as the fan-out says, up to the
total. Each level but the total is padded with zeros to a multiple of the fan-out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.sum_tree import EPSILON, HOST_BITS, MOST, QUANTUM, draw, refresh, set_weights, weights_of

MOST_PLACES = 2**24
"""So that a total stays below 2**63 quanta."""
FIRST_MAXIMUM = 2**24
"""The running maximum before any error is known, in quanta: p = 1 (Schaul et al. 2016, algorithm 1)."""
DEVICE_BITS = 7
"""log2 of the fan-out on a GPU: few levels, since each costs it some kernels."""


class Priorities(ABC):
    """Weights of the places of a window, all zero at first. What comes in and goes out lies on `device`.

    Attributes:
        places: how many there are.
        state_size: length of the vector of `store` and `load`.
    """

    def __init__(self, *, window_ticks: int, envs: int, alpha: float, device: torch.device, bits: int) -> None:
        """`bits` is log2 of the fan-out.

        Raises:
            ValueError: alpha is negative or not finite, or there are too many places.
        """
        if not 0.0 <= alpha < float("inf"):
            raise ValueError(f"The exponent of priorities is {alpha}; it must be 0 (uniform) or more.")
        self.places = window_ticks * envs
        if not 0 < self.places <= MOST_PLACES:
            raise ValueError(f"Priorities of {self.places} transitions; it must be 1 to {MOST_PLACES}.")
        self.state_size = self.places + 1
        self.device = device
        self._window_ticks, self._envs, self._alpha, self._bits = window_ticks, envs, alpha, bits
        lengths = [_padded(self.places, bits)]
        while lengths[-1] > 1:
            parents = lengths[-1] >> bits
            lengths.append(_padded(parents, bits) if parents > 1 else 1)
        self._offsets = np.cumsum([0, *lengths])
        self._sums = torch.zeros(sum(lengths), dtype=torch.int64, device=device)
        self._levels = self._sums.split(lengths)
        self._leaves = self._levels[0][: self.places]
        self._maximum = torch.full((1,), FIRST_MAXIMUM, dtype=torch.int64, device=device)

    def admit(self, first_tick: int, samplable: Tensor) -> None:
        """Ticks from `first_tick` on, bool[ticks, envs], enter with the running maximum, or 0 where not samplable.

        What lay in their places is gone. Raises `ValueError` for more ticks than the window has.
        """
        for first, last, begin in self._pieces(first_tick, len(samplable)):
            part = samplable[begin:].reshape(-1)[: last - first]
            torch.mul(part, self._maximum, out=self._leaves[first:last])
            self._refresh(first, last)

    def forget(self, first_tick: int, ticks: int) -> None:
        """These ticks are no longer sampled. Raises `ValueError` for more ticks than the window has."""
        for first, last, _ in self._pieces(first_tick, ticks):
            self._leaves[first:last] = 0
            self._refresh(first, last)

    @abstractmethod
    def sample(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Draw batches by weight, each stratified (Schaul et al. 2016, appendix B.2.1).

        Args:
            uniform: float64[count, batch] in [0, 1). Draw i of a batch takes what lies at (i + uniform) / batch of the
                total.

        Returns:
            places int64[count * batch], and how probable each was in a draw from the whole, P(i), float32.
        """

    @abstractmethod
    def update(self, places: Tensor, td_error_abs: Tensor) -> None:
        """Give places int64[n] the weight (|delta| + epsilon)^alpha of |delta| float32[n]; the maximum follows.

        The power is computed in float64 and rounded to float32: what libraries differ in survives once in 2**28.
        """

    def tick_env(self, places: Tensor, window_end: int) -> tuple[Tensor, Tensor]:
        """Tick and env, int64 each, of places of the window that ends before tick `window_end`."""
        last = window_end - 1
        slot = torch.div(places, self._envs, rounding_mode="floor")
        return last - (last - slot) % self._window_ticks, places - slot * self._envs

    def store(self, out: NDArray[np.float32]) -> None:
        """Write float32[state_size]: the weights by place, and last the running maximum.

        Nothing is rounded: a weight comes from a float32, and has no more than its 24 digits.
        """
        state = torch.from_numpy(out)
        state[:-1].copy_(self._leaves.float())
        state[-1:].copy_(self._maximum.float())
        state.mul_(QUANTUM)

    def load(self, state: NDArray[np.float32]) -> None:
        """Take over what `store` wrote.

        Raises:
            ValueError: it holds another number of weights, or something that is no weight.
        """
        if state.shape != (self.state_size,):
            raise ValueError(f"A state of {len(state)} numbers is none of {self.places} priorities.")
        quanta = state.astype(np.float64) / QUANTUM
        wrong = ~((quanta >= 0) & (quanta <= quanta[-1]) & (quanta == np.rint(quanta)))
        wrong[-1] |= not 1 <= quanta[-1] <= MOST
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(f"Number {place} of the state of priorities is {state[place]}, which is no weight.")
        whole = torch.from_numpy(quanta.astype(np.int64))
        self._leaves.copy_(whole[:-1])
        self._maximum.copy_(whole[-1:])
        self._refresh(0, self.places)

    def check_valid(self) -> None:
        """Raise `AssertionError` unless weights are in their range and every parent is the sum of its children."""
        leaves = self._levels[0]
        assert bool(((leaves >= 0) & (leaves <= self._maximum)).all()), "a weight is negative or above the maximum"
        assert not leaves[self.places :].any(), "there is weight behind the last place"
        for children, parents in zip(self._levels[:-1], self._levels[1:], strict=True):
            sums = children.view(-1, 1 << self._bits).sum(1)
            assert torch.equal(sums, parents[: len(sums)]), "a parent is not the sum of its children"
            assert not parents[len(sums) :].any(), "there is weight without a place"

    def _pieces(self, first_tick: int, ticks: int) -> list[tuple[int, int, int]]:
        """The places of ticks as one or two ranges [first, last), each with how many ticks are before it."""
        if ticks > self._window_ticks:
            raise ValueError(f"{ticks} ticks do not fit into a window of {self._window_ticks}.")
        slot = first_tick % self._window_ticks
        before_wrap = min(ticks, self._window_ticks - slot)
        pieces = [(slot, slot + before_wrap, 0), (0, ticks - before_wrap, before_wrap)]
        return [(first * self._envs, last * self._envs, begin) for first, last, begin in pieces if first < last]

    @abstractmethod
    def _refresh(self, first: int, last: int) -> None:
        """Recompute the parents of the leaves [first, last), at least."""


class HostPriorities(Priorities):
    """On a CPU, compiled."""

    def __init__(self, *, window_ticks: int, envs: int, alpha: float) -> None:
        cpu = torch.device("cpu")
        super().__init__(window_ticks=window_ticks, envs=envs, alpha=alpha, device=cpu, bits=HOST_BITS)
        self._tree = self._sums.numpy(), self._offsets[:-1]

    def sample(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """As `Priorities.sample`. Raises `ValueError` when nothing has weight."""
        if self._tree[0][-1] == 0:
            raise ValueError("There is no transition to sample: no priority is above 0.")
        targets, places = np.empty((2, uniform.numel()), np.int64)
        probability = np.empty(uniform.numel(), np.float32)
        draw(*self._tree, uniform.numpy(), targets, places, probability)
        return torch.from_numpy(places), torch.from_numpy(probability)

    def update(self, places: Tensor, td_error_abs: Tensor) -> None:
        """As `Priorities.update`. Raises `ValueError`, and changes nothing, for an error that is no size."""
        weights, errors = np.empty(len(places), np.int64), td_error_abs.numpy()
        wrong = weights_of(errors, self._alpha, weights)
        if wrong >= 0:
            raise ValueError(
                f"The TD error of place {int(places[wrong])} has the size {errors[wrong]}; a priority needs one that "
                "is finite and not negative."
            )
        set_weights(*self._tree, places.numpy(), weights, self._maximum.numpy())

    def _refresh(self, first: int, last: int) -> None:
        refresh(*self._tree, first, last)


class DevicePriorities(Priorities):
    """In PyTorch's operations: nothing waits for the device, and `sample` and `update` can be captured into a graph.

    So nothing is refused here. The trainer finds errors that are not finite in its own sums; until then such a weight
    is some number of its range. Without any weight, place 0 is drawn, with a probability that is not a number.
    """

    def __init__(self, *, window_ticks: int, envs: int, alpha: float, device: torch.device) -> None:
        super().__init__(window_ticks=window_ticks, envs=envs, alpha=alpha, device=device, bits=DEVICE_BITS)

    def sample(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """As `Priorities.sample`."""
        batch, total = uniform.shape[1], self._levels[-1]
        # Times the reciprocal, since on CUDA PyTorch divides by a number that way, whatever one writes.
        share = (uniform + torch.arange(batch, device=self.device)).mul_(1.0 / batch).reshape(-1)
        target = torch.minimum(share.mul_(total).long(), total - 1)
        node = torch.zeros_like(target)
        for level in reversed(self._levels[:-1]):
            children = level.view(-1, 1 << self._bits).index_select(0, node)
            up_to = children.cumsum(1)
            child = (up_to <= target[:, None]).sum(1)
            before = up_to.sub_(children).gather(1, child[:, None])
            target.sub_(before[:, 0])
            node.mul_(1 << self._bits).add_(child)
        return node, (self._leaves.index_select(0, node).double() / total).float()

    def update(self, places: Tensor, td_error_abs: Tensor) -> None:
        """As `Priorities.update`."""
        power = td_error_abs.double().add_(EPSILON).pow_(self._alpha).float().double()
        # Twice: no float above int64 is converted, and what is not a number becomes some integer.
        weights = power.div_(QUANTUM).round_().clamp_(max=MOST).long().clamp_(1, MOST)
        torch.maximum(self._maximum, weights.amax(), out=self._maximum)
        # All that name a place write the value of the last of them, so in which order they do is all one.
        ordered, order = places.sort(stable=True)
        last = order.index_select(0, torch.searchsorted(ordered, places, right=True).sub_(1))
        held = self._leaves.index_select(0, places).clamp_(max=1)
        self._leaves.index_copy_(0, places, weights.index_select(0, last).mul_(held))
        self._refresh(0, self.places)

    def _refresh(self, first: int, last: int) -> None:
        """Recompute all of them: a GPU reads all leaves in less time than it takes to say which ones changed."""
        for children, parents in zip(self._levels[:-1], self._levels[1:], strict=True):
            rows = children.view(-1, 1 << self._bits)
            torch.sum(rows, 1, out=parents[: len(rows)])


def priorities_on(device: torch.device, *, window_ticks: int, envs: int, alpha: float) -> Priorities:
    """The form that belongs to a device."""
    if device.type == "cpu":
        return HostPriorities(window_ticks=window_ticks, envs=envs, alpha=alpha)
    return DevicePriorities(window_ticks=window_ticks, envs=envs, alpha=alpha, device=device)


def _padded(length: int, bits: int) -> int:
    return -(-length >> bits) << bits
