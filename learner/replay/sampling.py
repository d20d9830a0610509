"""Transitions of the ring: samplable starts, draws, and uniform sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.replay.chunk import Chunk
from learner.replay.replay_frames import Batch, Frames
from learner.replay.returns import End, n_step
from shared.config.sections import Algorithm, Learn
from shared.memory.ring import Ring, plane_rows
from shared.prng import Stream, bits, philox


class Window:
    """The ticks of the ring with which sampled transitions may begin, and a list of these transitions.

    The list holds ascending ids `tick * envs + env`, first in, first out: a round appends the newly committed ticks and
    removes those that left the window. The order, by tick and then env, depends neither on the capacity of the ring nor
    on the actors of the lanes.
    """

    def __init__(self, ring: Ring) -> None:
        schedule = ring.run_schedule
        self._valid, self._envs, self._ticks = ring.field["valid"], schedule.envs, schedule.window_ticks
        self._n_step, self._stack = schedule.n_step, schedule.frames.stack
        self._ids = np.empty(2 * self._ticks * self._envs, np.int64)
        self._head = self._tail = self._end = 0

    def samplable(self, window_end: int) -> tuple[int, int]:
        """The ticks [first, end) before `window_end` at which a transition may begin, if an action was taken there.

        All frames of its stack and all steps of its return lie in the window. Frames before tick 0 count as zeros.
        """
        oldest = max(0, window_end - self._ticks)
        return oldest + self._stack - 1 if oldest > 0 else 0, max(0, window_end + 1 - self._n_step)

    def acted(self, begin: int, end: int) -> NDArray[np.bool_]:
        """bool[end - begin, envs]: where an action was taken."""
        slots = np.arange(begin, end) % self._valid.shape[1]
        return self._valid[:, slots].transpose(1, 0, 2).reshape(-1, self._envs) != 0

    def starts(self, window_end: int) -> NDArray[np.int64]:
        """The ids of the window that ends before tick `window_end`; a view, good until the next call."""
        first, end = self.samplable(window_end)
        if end < self._end or first > self._end:
            self._head = self._tail = 0
            self._end = min(first, end)
        new = np.flatnonzero(self.acted(self._end, end)) + self._end * self._envs
        if self._tail + len(new) > len(self._ids):
            kept = self._tail - self._head
            self._ids[:kept] = self._ids[self._head : self._tail]
            self._head, self._tail = 0, kept
        self._ids[self._tail : self._tail + len(new)] = new
        self._tail += len(new)
        self._end = end
        self._head += int(np.searchsorted(self._ids[self._head : self._tail], first * self._envs))
        return self._ids[self._head : self._tail]


def draw_integers(limit: int, count: int, batch: int, seed: int, round_: int) -> NDArray[np.int64]:
    """Uniform int64[count, batch] in [0, limit): a function of (seed, round) alone, by Philox counters."""
    return philox(bits(seed, Stream.REPLAY), round_).integers(0, limit, size=(count, batch))


def draw_fractions(count: int, batch: int, seed: int, round_: int, chunk: int) -> NDArray[np.float64]:
    """Uniform float64[count, batch] in [0, 1), for `Priorities.sample`: a function of (seed, round, chunk) alone."""
    return philox(bits(seed, Stream.REPLAY, round_), chunk).random((count, batch))


class Replay:
    """Transitions of the ring: drawn uniformly, or by tick and env."""

    def __init__(
        self,
        ring: Ring,
        frames: Frames,
        learn: Learn,
        seed: int,
        wait_for_lanes: Callable[[int], None] | None = None,
    ) -> None:
        """`learn` gives the batch size and the rules of returns; draws depend on `seed`; the rest as `make_engine`."""
        self.run_schedule, self.seed, self._wait_for_lanes = ring.run_schedule, seed, wait_for_lanes
        self.window, self.frames = Window(ring), frames
        self._ring, self._learn = ring, learn

    def upload(self, batch: Batch, device: torch.device) -> Batch:
        """Copy a batch to its devices: the fields that name frames to that of the frames, the others to `device`."""
        return Batch(*map(upload, batch, [self.frames.device] * 2 + [device] * 3))

    def draw_round(self, round_: int, window_end: int, updates: int, padded: int) -> Batch:
        """The transitions of all updates of a round, n = padded * batch, on the CPU, drawn uniformly.

        Those of update u are [u * batch, (u + 1) * batch). The first ones are repeated up to `padded` updates.

        Raises:
            ValueError: the window holds no transition.
        """
        starts = self.window.starts(window_end)
        if len(starts) == 0:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self.frames.advance(window_end)
        ids = starts[draw_integers(len(starts), updates, self._learn.batch_size, self.seed, round_)]
        tick, env = np.divmod(np.resize(ids, (padded, self._learn.batch_size)).reshape(-1), self.run_schedule.envs)
        return self.transitions(tick, env)

    def transitions(self, tick: NDArray[np.int64], env: NDArray[np.int64]) -> Batch:
        """Transitions that begin with tick `tick` of env `env`, int64[n] both, on the CPU."""
        flat, steps = self._ring.flat, self.run_schedule.n_step
        if self._wait_for_lanes is not None:
            self._wait_for_lanes(-(-(int(tick.max()) + steps) // self.run_schedule.round_ticks))
        now = self._ring.rows(env[:, None], tick[:, None] + np.arange(steps))
        # A tick that ended more than once ended by the stronger word: a terminal state, or a lost life that counts.
        ends = np.where(flat["truncated"][now] != 0, End.TRUNCATED, End.NONE)
        ends[(flat["terminated"][now] | flat["life_lost"][now]) != 0] = End.TERMINAL
        reward, clips = flat["raw_reward"][now], self._learn.clip_rewards
        value, discount, length = n_step(np.sign(reward) if clips else reward, ends, self._learn.discount)
        frames, mask = self.run_schedule.frames, self._ring.stack_rows(env, tick)[1]
        if steps == 1:  # the frame of t + 1 belongs to the episode of every t that was acted in
            ticks = tick[:, None] + np.arange(1 - frames.stack, 2)
            mask = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
        else:
            reach = np.arange(1 - frames.stack, 1)
            ticks = np.concatenate([tick[:, None] + reach, (tick + length)[:, None] + reach], axis=1)
            mask = np.concatenate([mask, self._ring.stack_rows(env, tick + length)[1]], axis=1)
        rows, mask = plane_rows(self.frames.rows(env[:, None], ticks), mask, frames.channels)
        action = flat["action"][now[:, 0]].astype(np.int64)
        return Batch(*map(torch.from_numpy, (rows, mask.astype(np.uint8), action, value, discount)))


class Sampler:
    """Base of the choices of the transitions of a round."""

    uses_errors: bool
    """True if the choice depends on the errors that updates find."""

    def begin_round(self, round_: int, window_end: int) -> None:
        """Begin a round that has updates, drawn from ticks before `window_end`."""

    def prefetch(self, round_: int, window_end: int) -> None:
        """Do the part of `begin_round` that is possible while the learner still trains on the round before."""

    def draw(self, number: int, chunk: Chunk) -> Batch:
        """The transitions of chunk `number`, where they are read; writes into `chunk` how they were drawn."""
        raise NotImplementedError

    def update_priorities(self, tree_index: Tensor, td_error: Tensor) -> None:
        """Update the priorities of drawn transitions by their errors float32[n]; only if `uses_errors`."""

    def store(self, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Write those vectors of its state that `out` names."""

    def load_state(self, state: Mapping[str, NDArray[np.float32]] | None) -> None:
        """Take over what `store` wrote. None: forget all errors."""


class UniformSampler(Sampler):
    """Sampling with equal probability. The window does not change within a round, so all is drawn at its start."""

    uses_errors = False

    def __init__(self, replay: Replay, algorithm: Algorithm, updates: int, device: torch.device) -> None:
        """Chunks of `updates` updates, for a learner on `device`."""
        self._replay, self._updates, self._device = replay, updates, device
        self._drawn: tuple[int, int, Batch] | None = None  # round, end of its window, transitions

    def begin_round(self, round_: int, window_end: int) -> None:
        """Draw, unless that was prefetched."""
        self.prefetch(round_, window_end)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Draw the transitions of a round, and bring them to where they are read."""
        if self._drawn is None or self._drawn[:2] != (round_, window_end):
            updates = self._replay.run_schedule.updates_in(round_)
            padded = -(-updates // self._updates) * self._updates
            plan = self._replay.draw_round(round_, window_end, updates, padded)
            self._drawn = round_, window_end, self._replay.upload(plan, self._device)

    def draw(self, number: int, chunk: Chunk) -> Batch:
        """The part of the round's transitions that chunk `number` holds."""
        assert self._drawn is not None, "a round was begun"
        n = len(chunk.reward)
        return self._drawn[2].part(number * n, (number + 1) * n)
