"""Prioritized sampling (Schaul et al. 2016): transitions are drawn in proportion to their last error.

A chunk is drawn while the updates use the chunk before it. So the errors of a chunk affect sampling from the second
chunk after it. Ape-X's learner draws its batches ahead, too. New ticks enter when a round begins.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.losses.scalar_loss import importance_weights
from learner.replay.chunk import Chunk
from learner.replay.priorities import Priorities
from learner.replay.replay_frames import Batch
from learner.replay.sampling import Replay, Sampler, draw_fractions
from shared.config.sections import Algorithm
from shared.errors import FatalError
from shared.memory.snapshot import PRIORITIES


class PrioritizedSampler(Sampler):
    """Sampling by priority.

    Attributes:
        tree: the priorities of the window.
    """

    uses_errors = True

    def __init__(self, replay: Replay, algorithm: Algorithm, updates: int, device: torch.device) -> None:
        """Chunks of `updates` updates, for a learner on `device`."""
        self._replay, self._run_schedule, self._algorithm = replay, replay.run_schedule, algorithm
        self._updates, self._device = updates, device
        ticks, envs = replay.run_schedule.priority_ticks, replay.run_schedule.envs
        self.tree = Priorities(window_ticks=ticks, envs=envs, alpha=algorithm.priority_exponent)
        self._round, self._window_end, self._beta = 0, 0, 0.0

    def begin_round(self, round_: int, window_end: int) -> None:
        """Admit the ticks that were added since the last round with updates, and forget those that left the window.

        Raises:
            ValueError: the window holds no transition.
        """
        run_schedule, tree = self._run_schedule, self.tree
        first, end = self._replay.window.samplable(window_end)
        last = round_ - 1
        while last > run_schedule.first_learning_round and not run_schedule.updates_in(last):
            last -= 1
        former = end - (round_ - last) * run_schedule.round_ticks
        new = first if tree.empty else max(first, former)
        tree.admit(new, self._replay.window.acted(new, end))
        oldest = max(0, window_end - run_schedule.window_ticks)
        tree.forget(oldest, first - oldest)
        tree.forget(end, window_end - end)
        if tree.empty:
            raise ValueError(f"The window that ends at tick {window_end} holds no transition to sample.")
        self._replay.frames.advance(window_end)
        self._round, self._window_end = round_, window_end
        self._beta = self._algorithm.importance_at(round_ * run_schedule.round_steps)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Bring the frames of the window to where they are read; transitions are drawn when errors are known."""
        self._replay.frames.advance(window_end)

    def draw(self, number: int, chunk: Chunk) -> Batch:
        """Draw chunk `number`; write its leaves, and weights of its losses, the greatest of each batch being 1."""
        batch = len(chunk.tree_index) // self._updates
        uniform = draw_fractions(self._updates, batch, self._replay.seed, self._round, number)
        found, probability = self.tree.sample(uniform)
        chunk.tree_index.copy_(torch.from_numpy(found))
        weights = importance_weights(torch.from_numpy(probability).view(self._updates, batch), self._beta)
        chunk.importance.copy_(upload(weights.view(-1), chunk.importance.device))
        transitions = self._replay.transitions(*self.tree.tick_env(found, self._window_end))
        return self._replay.upload(transitions, self._device)

    def update_priorities(self, tree_index: Tensor, td_error: Tensor) -> None:
        """Set the priorities of leaves int64[n] by errors float32[n]; waits for the copy of the errors from a GPU.

        Errors that are not finite change nothing: the loss is not finite either, and ends the round.

        Raises:
            FatalError: one is negative, which only a method's own mistake can be.
        """
        errors = td_error.cpu().numpy()  # not numpy(force=True), which holds Python's lock while it waits
        if not np.isfinite(errors).all():
            return
        try:
            self.tree.update(tree_index.numpy(), errors)
        except ValueError as wrong:
            raise FatalError(f"The method's loss gives an invalid priority. {wrong}") from wrong

    def store(self, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Write the priorities, if `out` names them."""
        if PRIORITIES in out:
            self.tree.store(out[PRIORITIES])

    def load_state(self, state: Mapping[str, NDArray[np.float32]] | None) -> None:
        """Take over the priorities. None: forget all."""
        if state is None:
            self.tree.clear()
        else:
            self.tree.load(state[PRIORITIES])
