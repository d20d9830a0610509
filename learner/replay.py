"""Which transitions a round samples, and how they are gathered from the ring or from its copy on the device."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from learner.network import BLOCK, GRID, blocks
from shared.config import FRAME_SIDE, STACK
from shared.random import Stream, bits
from shared.ring import Ring

FRAMES = STACK + 1
"""Frames of a transition: t-3 ... t+1 hold both stacks, s = the first four and s' = the last four."""

STAGING_BYTES = 64 << 20
"""Size of the pinned buffer through which frames go to a device."""


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

    def _acted(self, begin: int, end: int) -> NDArray[np.int64]:
        """Ids of the valid slots of ticks [begin, end)."""
        slots = np.arange(begin, end) % self._valid.shape[1]
        by_tick = self._valid[:, slots].transpose(1, 0, 2).reshape(-1)
        return np.flatnonzero(by_tick) + begin * self._envs


def draw(limit: int, count: int, batch: int, seed: int, round_: int) -> NDArray[np.int64]:
    """Uniform int64[count, batch] in [0, limit): a function of (seed, round) alone, by Philox counters."""
    generator = np.random.Generator(np.random.Philox(key=[bits(seed, Stream.REPLAY), round_]))
    return generator.integers(0, limit, size=(count, batch))


class Batch(NamedTuple):
    """Transitions (s, a, r, s') without their frames; each tensor's first dimension is the transition."""

    rows: Tensor
    """int64[n, 5]: where the frames t-3 ... t+1 lie."""
    keep: Tensor
    """uint8[n, 5, 1, 1]: 0 for frames from before the episode, which count as zeros."""
    action: Tensor
    """int64[n]."""
    reward: Tensor
    """float32[n], clipped to its sign."""
    discount: Tensor
    """float32[n]: gamma, or 0 where the return ends (a terminal state, or a lost life that counts)."""

    def part(self, begin: int, end: int) -> Batch:
        """The transitions [begin, end), as views."""
        return Batch(*(field[begin:end] for field in self))


class Frames(Protocol):
    """Where the learner reads frames from."""

    device: torch.device
    """Where `select` wants its rows."""

    def advance(self, window_end: int) -> None:
        """Hold the frames of all ticks of the window, and of tick `window_end` itself."""

    def rows(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the frames of (env, tick) lie; the arguments broadcast."""

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's frames as blocks uint8[n, 21, 21, 5 * 16] on the learner's device."""


@njit(error_model="numpy", cache=True, nogil=True)
def _select(lines, rows, keep, out):  # type: ignore[no-untyped-def]
    """Blocks of frames, in one pass over memory; four pixels of a line are one word.

    Args:
        lines: uint32[R, 84, 21], all frames.
        rows, keep: int64 and uint8[n, 5].
        out: uint32[n, 21, 21, 5, 4].
    """
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            if keep[i, k]:
                frame = lines[rows[i, k]]
                for y in range(GRID):
                    for x in range(GRID):
                        for line in range(BLOCK):
                            out[i, y, x, k, line] = frame[BLOCK * y + line, x]
            else:
                out[i, :, :, k] = 0


class HostFrames:
    """The frames of the ring in shared memory, for a learner on the CPU or a window that does not fit on the GPU."""

    def __init__(self, ring: Ring) -> None:
        self.device = torch.device("cpu")
        self._lines = ring.flat["frame"].view(np.uint32)
        self.rows = ring.rows

    def advance(self, window_end: int) -> None:
        """Nothing to do: the ring holds what the actors wrote."""

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's frames as blocks. Nobody waits for the copy to a GPU, so this runs ahead of it."""
        # PyTorch keeps a pinned buffer until the copy out of it is done, and then uses it again.
        host = out if out.device.type == "cpu" else torch.empty(out.shape, dtype=out.dtype, pin_memory=True)
        words = host.numpy().view(np.uint32).reshape(len(host), GRID, GRID, FRAMES, BLOCK)
        _select(self._lines, batch.rows.numpy(), batch.keep.numpy()[:, :, 0, 0], words)
        if host is not out:
            out.copy_(host, non_blocking=True)


class DeviceFrames:
    """A copy of the window on the device, to which a round adds what was played since."""

    def __init__(self, ring: Ring, device: torch.device) -> None:
        sizes = ring.sizes
        self.device = device
        self._ring = ring.field["frame"]
        self._envs = sizes.envs
        self._ticks = sizes.window_ticks + 1
        self._frames = torch.zeros(self._ticks * sizes.envs, FRAME_SIDE, FRAME_SIDE, dtype=torch.uint8, device=device)
        per_tick = sizes.envs * FRAME_SIDE * FRAME_SIDE
        staged = max(1, min(STAGING_BYTES // per_tick, sizes.round_ticks + 1))
        self._staging = torch.zeros(
            staged, sizes.envs, FRAME_SIDE, FRAME_SIDE, dtype=torch.uint8, pin_memory=device.type == "cuda"
        )
        self._end = 0  # frames of ticks before this one are here

    @staticmethod
    def nbytes(ring: Ring) -> int:
        """Device memory that the copy takes."""
        return (ring.sizes.window_ticks + 1) * ring.sizes.envs * FRAME_SIDE * FRAME_SIDE

    def advance(self, window_end: int) -> None:
        """Copy the ticks up to and including `window_end` that are not here yet."""
        oldest = max(0, window_end + 1 - self._ticks)
        # Going back happens when a round is done again; what lies in the overwritten slots is then copied anew.
        begin = oldest if window_end < self._end - 1 else max(oldest, self._end)
        for tick in range(begin, window_end + 1, len(self._staging)):
            self._copy(tick, min(tick + len(self._staging), window_end + 1))
        self._end = window_end + 1

    def _copy(self, begin: int, end: int) -> None:
        """Copy ticks [begin, end), through the staging buffer, tick by tick in the order of envs."""
        ticks = np.arange(begin, end)
        lanes = self._ring[:, ticks % self._ring.shape[1]]  # [lanes, ticks, lane_envs, 84, 84]
        staging = self._staging[: end - begin]
        staging.numpy().reshape(len(ticks), len(lanes), *lanes.shape[2:])[:] = lanes.transpose(1, 0, 2, 3, 4)
        places = self._frames.view(self._ticks, self._envs, FRAME_SIDE, FRAME_SIDE)
        cut = min(end, begin - begin % self._ticks + self._ticks)  # the first tick that lies at the beginning again
        for first, last in ((begin, cut), (cut, end)):
            if first < last:
                place = first % self._ticks
                places[place : place + last - first].copy_(staging[first - begin : last - begin], non_blocking=True)
        if staging.is_pinned():
            torch.cuda.current_stream().synchronize()  # before the buffer is filled again

    def rows(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the frames of (env, tick) lie; the arguments broadcast."""
        return tick % self._ticks * self._envs + env

    def select(self, batch: Batch, out: Tensor) -> None:
        """Write the batch's frames as blocks."""
        chosen = self._frames.index_select(0, batch.rows.view(-1)).view(*batch.rows.shape, FRAME_SIDE, FRAME_SIDE)
        blocks(chosen.mul_(batch.keep), out)


class Replay:
    """The transitions of a round: drawn at its start, all at once, since the window does not change within it."""

    def __init__(self, ring: Ring, frames: Frames, *, batch: int, discount: float, seed: int) -> None:
        self._ring = ring
        self._frames = frames
        self._batch = batch
        self._discount = discount
        self._seed = seed
        self._starts = Starts(ring)

    def plan(self, round_: int, window_end: int, updates: int, padded: int) -> Batch:
        """The transitions of all updates of a round, n = padded * batch, on the CPU.

        Those of update u are [u * batch, (u + 1) * batch); what pads them to `padded` updates repeats the first ones.

        Raises:
            ValueError: the window holds no transition.
        """
        starts = self._starts.advance(window_end)
        if len(starts) == 0:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self._frames.advance(window_end)
        ids = starts[draw(len(starts), updates, self._batch, self._seed, round_)]
        ids = np.resize(ids, (padded, self._batch)).reshape(-1)
        tick, env = np.divmod(ids, self._ring.sizes.envs)
        flat = self._ring.flat
        stack, keep = self._ring.stack_rows(env, tick)
        now = stack[:, -1]
        ends = (flat["terminated"][now] | flat["life_lost"][now]) != 0
        rows = self._frames.rows(env[:, None], tick[:, None] + np.arange(1 - STACK, 2))
        # The frame of t + 1 belongs to the episode of every t that was acted in, so s' is masked as s is.
        keep = np.concatenate([keep, np.ones_like(keep[:, :1])], axis=1)
        return Batch(
            rows=torch.from_numpy(rows),
            keep=torch.from_numpy(keep.astype(np.uint8)[:, :, None, None]),
            action=torch.from_numpy(flat["action"][now].astype(np.int64)),
            reward=torch.from_numpy(np.sign(flat["raw_reward"][now])),
            discount=torch.from_numpy(np.where(ends, np.float32(0.0), np.float32(self._discount))),
        )
