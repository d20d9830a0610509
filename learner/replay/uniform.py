"""Uniform sampling: all transitions of a round are drawn at its start, since the window does not change within it."""

from __future__ import annotations

import torch

from learner.replay.chunk import Chunk
from learner.replay.replay_frames import Batch
from learner.replay.sampling import Replay, Sampler
from shared.config.sections import Algorithm


class UniformSampler(Sampler):
    """Sampling with equal probability."""

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
