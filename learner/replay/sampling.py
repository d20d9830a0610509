"""Transitions of the ring: samplable starts, draws, and frames in shared memory or in a copy on the device."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import Pinned, upload
from learner.networks.fused import blocks
from learner.replay.gather import select
from learner.replay.returns import End, n_step
from shared.config.sections import Learn
from shared.frame_shape import BLOCK, FrameShape
from shared.memory.parts.ring import Ring, plane_rows
from shared.prng import Stream, bits


def planes_per_transition(frames: FrameShape, n_step: int) -> int:
    """Planes of a transition: with one step the frames up to t + 1 hold both stacks; with more, each has its own."""
    return (frames.stack + 1 if n_step == 1 else 2 * frames.stack) * frames.channels


def second_stack_offset(frames: FrameShape, n_step: int) -> int:
    """The plane of a transition with which s' begins."""
    return planes_per_transition(frames, n_step) - frames.planes


STAGING_BYTES = 16 << 20
"""Size of each of the two pinned buffers through which frames go to a device."""


class Starts:
    """The samplable transitions of the window, as ascending ids `tick * envs + env`.

    A first-in first-out list: a round appends the newly committed ticks and removes those that left the window. The
    order, by tick and then env, depends neither on the capacity of the ring nor on the actors of the lanes.
    """

    def __init__(self, ring: Ring) -> None:
        self._valid = ring.field["valid"]
        self._envs = ring.run_schedule.envs
        self._window_ticks = ring.run_schedule.window_ticks
        self._n_step, self._stack = ring.run_schedule.n_step, ring.run_schedule.frames.stack
        self._ids = np.empty(2 * self._window_ticks * self._envs, np.int64)
        self._head = self._tail = self._end = 0

    def advance(self, window_end: int) -> NDArray[np.int64]:
        """The ids of the window that ends before tick `window_end`; a view, good until the next call."""
        first, window_end = self.samplable(window_end)
        if window_end < self._end or first > self._end:
            self._head = self._tail = 0
            self._end = min(first, window_end)
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

    def samplable(self, window_end: int) -> tuple[int, int]:
        """The ticks [first, end) that can be sampled if they were acted in.

        The frames of a stack lie in the window; before tick 0 there is nothing, which counts as zeros. So do the
        steps whose rewards are added up.
        """
        oldest = max(0, window_end - self._window_ticks)
        return oldest + self._stack - 1 if oldest > 0 else 0, max(0, window_end + 1 - self._n_step)

    def acted(self, begin: int, end: int) -> NDArray[np.bool_]:
        """bool[end - begin, envs]: where an action was taken."""
        slots = np.arange(begin, end) % self._valid.shape[1]
        return self._valid[:, slots].transpose(1, 0, 2).reshape(-1, self._envs) != 0

    def _acted(self, begin: int, end: int) -> NDArray[np.int64]:
        """Ids of the valid slots of ticks [begin, end)."""
        return np.flatnonzero(self.acted(begin, end)) + begin * self._envs


def draw(limit: int, count: int, batch: int, seed: int, round_: int) -> NDArray[np.int64]:
    """Uniform int64[count, batch] in [0, limit): a function of (seed, round) alone, by Philox counters."""
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.REPLAY), round_]))
    return generator.integers(0, limit, size=(count, batch))


def draw_uniform(count: int, batch: int, seed: int, round_: int, chunk: int) -> NDArray[np.float64]:
    """Uniform float64[count, batch] in [0, 1), for `Priorities.sample`: a function of (seed, round, chunk) alone."""
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.REPLAY, round_), chunk]))
    return generator.random((count, batch))


class Batch(NamedTuple):
    """Transitions (s, a, r, s') without their frames; each tensor's first dimension is the transition."""

    rows: Tensor
    """int64[n, k]: where the planes of both stacks lie, k = `planes_per_transition`."""
    frame_mask: Tensor
    """uint8[n, k, 1, 1]: 0 for planes from before the episode, which count as zeros."""
    action: Tensor
    """int64[n]."""
    reward: Tensor
    """float32[n]: the discounted sum of one reward or more, each clipped to its sign unless told otherwise."""
    discount: Tensor
    """float32[n]: gamma^steps, or 0 where the return ends (a terminal state, or a lost life that counts)."""

    def part(self, begin: int, end: int) -> Batch:
        """The transitions [begin, end), as views."""
        return Batch(*(field[begin:end] for field in self))


class Frames(Protocol):
    """Frames of the window, in shared memory or on the device."""

    device: torch.device
    """Device of the rows that `select` takes."""

    def advance(self, window_end: int) -> None:
        """Hold the frames of all ticks of the window, and of tick `window_end` itself."""

    def rows(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the frames of (env, tick); the arguments broadcast."""

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's planes as blocks uint8[n, g, g, k * 16] on the learner's device."""


class HostFrames:
    """The frames of the ring in shared memory, for a learner on the CPU or a window that does not fit on the GPU."""

    def __init__(self, ring: Ring) -> None:
        self.device = torch.device("cpu")
        self._lines = ring.planes.view(np.uint32)
        self._pinned: list[Pinned] = []
        self.rows = ring.rows

    def advance(self, window_end: int) -> None:
        """Do nothing: the ring holds what the actors wrote."""

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's frames as blocks; to a GPU through pinned memory, without waiting for the copy."""
        if out.device.type == "cpu":
            self._gather(batch, out)
            return
        if not self._pinned:  # two: one is filled while the other travels
            self._pinned = [Pinned(out.shape, out.device) for _ in range(2)]
        self._pinned.reverse()
        self._pinned[0].send(partial(self._gather, batch), out)

    def _gather(self, batch: Batch, out: Tensor) -> None:
        words = out.numpy().view(np.uint32).reshape(*out.shape[:3], -1, BLOCK)
        select(self._lines, batch.rows.numpy(), batch.frame_mask.numpy()[:, :, 0, 0], words)


class DeviceFrames:
    """A copy of the window on the device, to which each round adds its frames.

    It has the layout of the rings, [lanes, ticks, lane_envs, *frame], so the new frames of a lane are one copy. It
    holds one round more than the window, so the next round's frames can arrive while this round's are sampled.
    """

    def __init__(self, ring: Ring, device: torch.device) -> None:
        run_schedule = ring.run_schedule
        self.device = device
        self._ring = ring.field["frame"]
        self._lane_envs = run_schedule.lane_envs
        self._window = run_schedule.window_ticks
        self._ticks = self._tick_capacity(ring)
        frames = run_schedule.frames
        shape = (run_schedule.lanes, self._ticks, run_schedule.lane_envs, *frames.frame)
        self._frames = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._planes = self._frames.view(-1, frames.size, frames.size)
        per_tick = run_schedule.lane_envs * frames.nbytes
        staged = max(1, min(STAGING_BYTES // per_tick, run_schedule.round_ticks + 1))
        self._staging = [Pinned((staged, *shape[2:]), device) for _ in range(2)]
        self._end = 0  # frames of ticks before this one are here

    @staticmethod
    def _tick_capacity(ring: Ring) -> int:
        return ring.run_schedule.window_ticks + ring.run_schedule.round_ticks + 1

    @classmethod
    def nbytes(cls, ring: Ring) -> int:
        """Device memory that the copy takes."""
        return cls._tick_capacity(ring) * ring.run_schedule.envs * ring.run_schedule.frames.nbytes

    def advance(self, window_end: int) -> None:
        """Copy the ticks up to and including `window_end` that are not here yet, without waiting for the copies."""
        oldest = max(0, window_end - self._window)
        # Going back happens when a round is done again; what lies in the overwritten slots is then copied anew.
        begin = oldest if window_end < self._end - 1 else max(oldest, self._end)
        capacity, most = self._ring.shape[1], len(self._staging[0])
        for lane in range(len(self._ring)):
            tick = begin
            while tick <= window_end:
                source, place = tick % capacity, tick % self._ticks
                count = min(window_end + 1 - tick, most, capacity - source, self._ticks - place)
                frames = torch.from_numpy(self._ring[lane, source : source + count])
                self._staging.reverse()
                self._staging[0].send(partial(_fill, frames), self._frames[lane, place : place + count])
                tick += count
        self._end = window_end + 1

    def rows(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the frames of (env, tick); the arguments broadcast."""
        lane, j = np.divmod(env, self._lane_envs)
        return (lane * self._ticks + tick % self._ticks) * self._lane_envs + j

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's frames as blocks."""
        # In words of eight bytes: a million steps have more bytes than 32-bit indices reach, for which a GPU's kernels
        # are made, but not more words.
        planes = self._planes.flatten(1).view(torch.int64)
        gathered = planes.index_select(0, batch.rows.view(-1)).view(*batch.rows.shape, -1)
        kept = gathered.mul_(batch.frame_mask[..., 0]).view(torch.uint8)
        blocks(kept.view(*batch.rows.shape, *self._planes.shape[1:]), out)


def _fill(source: Tensor, out: Tensor) -> None:
    out.copy_(source)


class Replay:
    """Transitions of the ring, by place in the window."""

    def __init__(self, ring: Ring, frames: Frames, learn: Learn, seed: int) -> None:
        """`learn` gives the batch size and the rules of returns; draws depend on `seed`."""
        self.run_schedule, self.seed = ring.run_schedule, seed
        self._starts = Starts(ring)
        self._ring = ring
        self._frames = frames
        self._learn = learn

    def samplable(self, window_end: int) -> tuple[int, int]:
        """The ticks [first, end) that can be sampled if they were acted in (`Starts.samplable`)."""
        return self._starts.samplable(window_end)

    def acted(self, begin: int, end: int) -> NDArray[np.bool_]:
        """bool[end - begin, envs]: where an action was taken."""
        return self._starts.acted(begin, end)

    def advance_frames(self, window_end: int) -> None:
        """Bring the frames of the window that ends before tick `window_end` to where they are read."""
        self._frames.advance(window_end)

    def upload(self, batch: Batch, device: torch.device) -> Batch:
        """Bring transitions to where they are read: those fields that name frames to these, the others to `device`."""
        devices = [self._frames.device] * 2 + [device] * 3
        return Batch(*(upload(field, at) for field, at in zip(batch, devices, strict=True)))

    def draw_round(self, round_: int, window_end: int, updates: int, padded: int) -> Batch:
        """The transitions of all updates of a round, n = padded * batch, on the CPU, drawn uniformly.

        Those of update u are [u * batch, (u + 1) * batch). The first ones are repeated up to `padded` updates.

        Raises:
            ValueError: the window holds no transition.
        """
        starts = self._starts.advance(window_end)
        if len(starts) == 0:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self._frames.advance(window_end)
        ids = starts[draw(len(starts), updates, self._learn.batch_size, self.seed, round_)]
        tick, env = np.divmod(np.resize(ids, (padded, self._learn.batch_size)).reshape(-1), self.run_schedule.envs)
        return self.transitions(tick, env)

    def transitions(self, tick: NDArray[np.int64], env: NDArray[np.int64]) -> Batch:
        """Transitions that begin with tick `tick` of env `env`, int64[n] both, on the CPU."""
        flat, steps = self._ring.flat, self.run_schedule.n_step
        now = self._ring.rows(env[:, None], tick[:, None] + np.arange(steps))
        # A tick that ended more than once ended by the stronger word: a terminal state, or a lost life that counts.
        ends = np.where(flat["truncated"][now] != 0, End.TRUNCATED, End.NONE)
        ends[(flat["terminated"][now] | flat["life_lost"][now]) != 0] = End.TERMINAL
        reward = flat["raw_reward"][now]
        clipped = np.sign(reward) if self._learn.clip_rewards else reward
        value, discount, length = n_step(clipped, ends, self._learn.discount)
        frames, mask = self.run_schedule.frames, self._ring.stack_rows(env, tick)[1]
        if steps == 1:  # the frame of t + 1 belongs to the episode of every t that was acted in
            ticks = tick[:, None] + np.arange(1 - frames.stack, 2)
            mask = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
        else:
            reach = np.arange(1 - frames.stack, 1)
            ticks = np.concatenate([tick[:, None] + reach, (tick + length)[:, None] + reach], axis=1)
            mask = np.concatenate([mask, self._ring.stack_rows(env, tick + length)[1]], axis=1)
        rows, mask = plane_rows(self._frames.rows(env[:, None], ticks), mask, frames.channels)
        return Batch(
            rows=torch.from_numpy(rows),
            frame_mask=torch.from_numpy(mask.astype(np.uint8)[:, :, None, None]),
            action=torch.from_numpy(flat["action"][now[:, 0]].astype(np.int64)),
            reward=torch.from_numpy(value),
            discount=torch.from_numpy(discount),
        )
