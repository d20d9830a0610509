"""Transitions without their frames, and the frames of the window, in shared memory or in a copy on the device."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from learner.engine.accelerator import is_gpu
from learner.engine.host_transfer import Pinned
from learner.networks.frame_blocks import blocks, gather_augmented, gather_planes_to
from shared.frame_shape import BLOCK, FrameShape
from shared.memory.ring import Ring

AS_THEY_ARE = torch.zeros(0, 2, 3)
"""An empty `Chunk.augmentation`."""
STAGING_BYTES = 16 << 20
"""Size of each of the two pinned buffers through which `DeviceFrames` copies new frames."""


def planes_per_transition(frames: FrameShape, n_step: int) -> int:
    """Planes of a transition: with one step the frames up to t + 1 hold both stacks; with more, each has its own."""
    return (frames.stack + 1 if n_step == 1 else 2 * frames.stack) * frames.channels


def second_stack_offset(frames: FrameShape, n_step: int) -> int:
    """The plane of a transition with which s' begins."""
    return planes_per_transition(frames, n_step) - frames.planes


class Batch(NamedTuple):
    """Transitions (s, a, r, s') without their frames; each tensor's first dimension is the transition."""

    rows: Tensor
    """int64[n, k]: where the planes of both stacks lie, k = `planes_per_transition`."""
    frame_mask: Tensor
    """uint8[n, k]: 0 for planes from before the episode, which count as zeros."""
    action: Tensor
    """int64[n]."""
    reward: Tensor
    """float32[n]: the discounted sum of one reward or more, each clipped to its sign unless told otherwise."""
    discount: Tensor
    """float32[n]: gamma^steps, or 0 where the return ends (a terminal state, or a lost life that counts)."""

    def part(self, begin: int, end: int) -> Batch:
        """The transitions [begin, end), as views."""
        return Batch(*(field[begin:end] for field in self))


class HostFrames:
    """The frames of the ring in shared memory, for a learner on the CPU or a window that does not fit on the GPU.

    Attributes:
        device: of the rows that `select` takes.
        rows: returns rows of the frames of (env, tick); the arguments broadcast.
    """

    def __init__(self, ring: Ring) -> None:
        self.device = torch.device("cpu")
        self._planes = ring.planes
        self._pinned: list[Pinned] = []
        self.rows = ring.rows

    def advance(self, window_end: int) -> None:
        """Do nothing: the ring holds what the actors wrote."""

    def select(self, rows: Tensor, frame_mask: Tensor, out: Tensor, augmentation: Tensor = AS_THEY_ARE) -> None:
        """Write planes as blocks uint8[n, g, g, k * 16] on the learner's device; arguments as in `Batch`.

        To a GPU they go through pinned memory, without waiting for the copy.

        Args:
            augmentation: as in `Chunk`; frames on a device take none.
        """
        if not is_gpu(out.device):
            self._gather(rows, frame_mask, augmentation, out)
            return
        if not self._pinned:  # two: one is filled while the other travels
            self._pinned = [Pinned(out.shape, out.device) for _ in range(2)]
        self._pinned.reverse()
        self._pinned[0].send(partial(self._gather, rows, frame_mask, augmentation), out)

    def _gather(self, rows: Tensor, frame_mask: Tensor, augmentation: Tensor, out: Tensor) -> None:
        planes = rows.numpy(), frame_mask.numpy()
        cells = out.numpy().reshape(*out.shape[:3], rows.shape[1], BLOCK, BLOCK)
        if len(augmentation):
            gather_augmented(self._planes, *planes, augmentation.numpy(), cells)
        else:
            gather_planes_to(self._planes.view(np.uint32), *planes, np.arange(len(out)), cells.view(np.uint32)[..., 0])


class DeviceFrames:
    """A copy of the window on the device, to which each round adds its frames.

    It has the layout of the rings, [lanes, ticks, lane_envs, *frame], so the new frames of a lane are one copy. It
    holds one round more than the window, for safety: the next round's frames overwrite nothing that this round samples.
    Copies come after the gathers of the round before; that order alone would be enough.

    Attributes:
        device: of the copy.
        rows: function as that of `HostFrames`, in lanes of as many ticks as the copy has.
    """

    def __init__(self, ring: Ring, device: torch.device) -> None:
        run_schedule = ring.run_schedule
        self.device = device
        self._ring_frames = ring.field["frame"]
        self._window = run_schedule.window_ticks
        self._ticks = self._tick_capacity(ring)
        self.rows = partial(ring.rows, ticks=self._ticks)
        frames = run_schedule.frames
        shape = (run_schedule.lanes, self._ticks, run_schedule.lane_envs, *frames.frame)
        self._frames = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._planes = self._frames.view(-1, frames.size, frames.size)
        per_tick = run_schedule.lane_envs * frames.nbytes
        self._staged = max(1, min(STAGING_BYTES // per_tick, run_schedule.round_ticks + 1))
        self._staging = [Pinned((self._staged, *shape[2:]), device) for _ in range(2)]
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
        capacity = self._ring_frames.shape[1]
        for lane in range(len(self._ring_frames)):
            tick = begin
            while tick <= window_end:
                source, place = tick % capacity, tick % self._ticks
                count = min(window_end + 1 - tick, self._staged, capacity - source, self._ticks - place)
                frames = torch.from_numpy(self._ring_frames[lane, source : source + count])
                self._staging.reverse()
                self._staging[0].send(partial(Tensor.copy_, other=frames), self._frames[lane, place : place + count])
                tick += count
        self._end = window_end + 1

    def select(self, rows: Tensor, frame_mask: Tensor, out: Tensor, augmentation: Tensor = AS_THEY_ARE) -> None:
        """Write planes as blocks, as `HostFrames` does."""
        # In words of eight bytes: a million steps have more bytes than 32-bit indices reach, for which a GPU's kernels
        # are made, but not more words.
        planes = self._planes.flatten(1).view(torch.int64)
        gathered = planes.index_select(0, rows.view(-1)).view(*rows.shape, -1)
        kept = gathered.mul_(frame_mask[..., None]).view(torch.uint8)
        blocks(kept.view(*rows.shape, *self._planes.shape[1:]), out)


Frames: TypeAlias = HostFrames | DeviceFrames
"""Frames of the window, in shared memory or on the device."""
