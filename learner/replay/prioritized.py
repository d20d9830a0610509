"""Prioritized replay in the rounds: which transitions the next chunk learns from, and what it taught.

A chunk is drawn while the one before it is still being learnt from, so the errors of a chunk count from the second
chunk after it on; Ape-X's learner draws its batches ahead, too. New ticks enter when a round begins.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.losses.scalar_loss import importance_weights
from learner.replay.priorities import Priorities
from learner.replay.sampling import Batch, Frames, Replay, draw_uniform
from shared.config.run_schedule import RunSchedule
from shared.config.settings import Algorithm
from shared.errors import FatalError
from shared.memory.ring import Ring


class Prioritized:
    """The tree of priorities, and batches drawn from it."""

    def __init__(
        self, ring: Ring, replay: Replay, frames: Frames, *, algorithm: Algorithm, updates: int, batch: int, seed: int
    ) -> None:
        """`updates` of `batch` transitions each are drawn at a time."""
        self._run_schedule: RunSchedule = ring.run_schedule
        self._replay, self._frames = replay, frames
        self._extend, self._shape, self._seed = algorithm, (updates, batch), seed
        self.tree = Priorities(
            window_ticks=ring.run_schedule.priority_ticks,
            envs=ring.run_schedule.envs,
            alpha=algorithm.priority_exponent,
        )
        self._round = self._window_end = 0
        self._beta = 0.0

    def begin(self, round_: int, window_end: int) -> None:
        """Let the ticks in that were added since the last round that learnt, and those go that left the window.

        Raises:
            ValueError: the window holds no transition.
        """
        run_schedule, tree = self._run_schedule, self.tree
        first, end = self._replay.starts.samplable(window_end)
        last = round_ - 1
        while last > run_schedule.first_learning_round and not run_schedule.updates_in(last):
            last -= 1
        former = end - (round_ - last) * run_schedule.round_ticks
        new = first if tree.empty else max(first, former)
        tree.admit(new, self._replay.starts.acted(new, end))
        oldest = max(0, window_end - run_schedule.window_ticks)
        tree.forget(oldest, first - oldest)
        tree.forget(end, window_end - end)
        if tree.empty:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self._frames.advance(window_end)
        self._round, self._window_end = round_, window_end
        self._beta = self._extend.importance_at(round_ * run_schedule.round_steps)

    def prefetch(self, window_end: int) -> None:
        """Bring the frames of a coming window, whose transitions are not drawn yet, to where they are read."""
        self._frames.advance(window_end)

    def draw(self, number: int, places: Tensor, importance: Tensor) -> Batch:
        """The transitions of chunk `number` of the round, n = updates * batch.

        Args:
            places: int64[n], written: where they stand in the tree.
            importance: float32[n], written: weights of their losses, the greatest of each batch being 1.
        """
        found, probability = self.tree.sample(draw_uniform(*self._shape, self._seed, self._round, number))
        places.copy_(torch.from_numpy(found))
        weights = importance_weights(torch.from_numpy(probability).view(self._shape), self._beta)
        importance.copy_(upload(weights.view(-1), importance.device))
        return self._replay.transitions(*self.tree.tick_env(found, self._window_end))

    def learn(self, places: Tensor, error: Tensor) -> None:
        """Errors float32[n] that were found at places int64[n]; the copy from a GPU is waited for.

        Errors that are not finite teach nothing: the loss is not finite either, and ends the round.

        Raises:
            FatalError: one is negative, which only a method's own mistake can be.
        """
        errors = error.cpu().numpy()  # not numpy(force=True), which holds Python's lock while it waits
        if not np.isfinite(errors).all():
            return
        try:
            self.tree.update(places.numpy(), errors)
        except ValueError as wrong:
            raise FatalError(f"The method's loss gives an invalid priority. {wrong}") from wrong
