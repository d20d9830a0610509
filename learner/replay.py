"""Which transitions a round samples, and how they are gathered from the ring."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shared.config import FRAME_SIDE, STACK
from shared.random import Stream, bits
from shared.ring import Ring


class Batch(NamedTuple):
    """Transitions (s, a, r, s'): five frames hold both stacks, s = frames[:, :4] and s' = frames[:, 1:]."""

    frames: Tensor
    """uint8[n, 5, 84, 84]; zeros before the episode's first frame."""
    action: Tensor
    """int64[n]."""
    reward: Tensor
    """float32[n], clipped to its sign."""
    discount: Tensor
    """float32[n]: gamma, or 0 where the return ends (a terminal state or a lost life that counts)."""


class Starts:
    """The samplable transitions of the window, as ascending ids `tick * envs + env`.

    A first-in first-out list: a round appends the ticks that were committed since, and forgets those that left the
    window. The order, by tick and then env, depends neither on the capacity of the ring nor on who played what.
    """

    def __init__(self, ring: Ring) -> None:
        self._valid = ring.field["valid"]
        self._envs = ring.sizes.envs
        self._window_ticks = ring.sizes.window_ticks
        self._ids = np.empty(2 * self._window_ticks * self._envs, np.int64)
        self._head = self._tail = self._end = 0

    def advance(self, window_end: int) -> NDArray[np.int64]:
        """The ids of the window that ends before tick `window_end`; a view, good until the next call.

        A tick can be sampled when it was acted in and the four frames of its stack lie in the window; before tick 0
        there is nothing, which counts as zeros.
        """
        oldest = max(0, window_end - self._window_ticks)
        first = oldest + STACK - 1 if oldest > 0 else 0
        if window_end < self._end or first > self._end:
            self._head = self._tail = 0
            self._end = first
        new = self._acted(self._end, window_end)
        if self._tail + len(new) > len(self._ids):
            kept = self._tail - self._head
            self._ids[:kept] = self._ids[self._head : self._tail]
            self._head, self._tail = 0, kept
        self._ids[self._tail : self._tail + len(new)] = new
        self._tail += len(new)
        self._end = window_end
        self._head += int(np.searchsorted(self._ids[self._head : self._tail], first * self._envs))
        return self._ids[self._head : self._tail]

    def _acted(self, begin: int, end: int) -> NDArray[np.int64]:
        """Ids of the valid slots of ticks [begin, end)."""
        slots = np.arange(begin, end) % self._valid.shape[1]
        by_tick = self._valid[:, slots].transpose(1, 0, 2).reshape(-1)
        return np.flatnonzero(by_tick) + begin * self._envs


def draw(limit: int, count: int, batch: int, seed: int, round_: int) -> NDArray[np.int64]:
    """Uniform int64[count, batch] in [0, limit): a function of (seed, round) alone, by Philox counters."""
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.REPLAY), round_]))
    return generator.integers(0, limit, size=(count, batch))


class HostReplay:
    """Samples straight from the ring in shared memory."""

    def __init__(self, ring: Ring, batch: int, discount: float, seed: int) -> None:
        self._ring = ring
        self._batch = batch
        self._discount = discount
        self._seed = seed
        self._starts = Starts(ring)
        self._ids = np.empty((0, batch), np.int64)
        self._frames = torch.from_numpy(ring.flat["frame"])

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Draw the transitions of all updates of a round.

        Raises:
            ValueError: the window holds no transition.
        """
        starts = self._starts.advance(window_end)
        if len(starts) == 0:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self._ids = starts[draw(len(starts), updates, self._batch, self._seed, round_)]

    def gather(self, begin: int, end: int) -> Batch:
        """Transitions of updates [begin, end) of the round: n = (end - begin) * batch."""
        flat = self._ring.flat
        tick, env = np.divmod(self._ids[begin:end].reshape(-1), self._ring.sizes.envs)
        stack, mask = self._ring.stack_rows(env, tick)
        rows = np.concatenate([stack, self._ring.rows(env, tick + 1)[:, None]], axis=1)
        frames = self._frames.index_select(0, torch.from_numpy(rows.reshape(-1)))
        frames = frames.view(len(tick), STACK + 1, FRAME_SIDE, FRAME_SIDE)
        # The frame of t + 1 belongs to the episode of every valid t, so the mask of s' is that of s moved by one.
        outside = np.nonzero(~mask)
        frames[outside] = 0
        row = stack[:, -1]
        ends = (flat["terminated"][row] | flat["life_lost"][row]) != 0
        return Batch(
            frames=frames,
            action=torch.from_numpy(flat["action"][row].astype(np.int64)),
            reward=torch.from_numpy(np.sign(flat["raw_reward"][row])),
            discount=torch.from_numpy(np.where(ends, 0.0, self._discount).astype(np.float32)),
        )
