"""Gradients of an on-policy method with a recurrent network, by the newest steps of one worker."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.networks.model import ExtraInputs, Model, Recurrence
from learner.rollout.on_policy_method import OnPolicyMethod
from learner.rollout.step_reader import StepReader
from shared.memory.run_memory import Memory
from workers.newest_steps import Choose, NewestSteps


class NewestSequences(NewestSteps):
    """The steps that a worker has played since its last gradient, as one sequence of each of its envs.

    A sequence begins with the state that acting had at that moment, which lies in the ring. The network reads it from
    there on, with a state of zeros wherever an episode begins. Gradients end at the first tick (Mnih et al. 2016).
    """

    def __init__(
        self, memory: Memory, model: Model, target: Model | None, method: OnPolicyMethod, choose: Choose
    ) -> None:
        """Arguments as for `NewestSteps`."""
        super().__init__(memory, model, target, method, choose)
        envs, units, rows = memory.run_schedule.lane_envs, memory.run_schedule.recurrent_units, len(self._blocks)
        self._row_steps = torch.arange(rows).view(-1, envs).t().flatten()
        self._step_rows = self._row_steps.argsort()
        self._row_blocks = torch.zeros_like(self._blocks)
        self._recurrence = Recurrence(torch.zeros(envs, 2, units), torch.zeros(rows))

    def _inputs(
        self, reader: StepReader, tick: NDArray[np.int64], env: NDArray[np.int64]
    ) -> tuple[Tensor, ExtraInputs]:
        """Blocks and starts of episodes by env and then tick, and the states before the first ticks."""
        state, start = map(torch.from_numpy, reader.sequences(tick, env))
        self._recurrence.state.copy_(state)
        torch.index_select(start, 0, self._row_steps, out=self._recurrence.start)
        torch.index_select(self._blocks, 0, self._row_steps, out=self._row_blocks)
        return self._row_blocks, ExtraInputs(recurrence=self._recurrence)

    def _by_tick(self, rows: Tensor) -> Tensor:
        return rows[self._step_rows]

    def _by_row(self, steps: Tensor) -> Tensor:
        return steps[self._row_steps]
