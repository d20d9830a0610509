"""The newest round as a round source of a recurrent network: whole sequences, in a different order in every pass."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.host_transfer import upload
from learner.networks.model import ExtraInputs, Recurrence
from learner.rollout.rollout_source import RolloutSource


class SequenceSource(RolloutSource):
    """Rounds of whole envs as minibatches, one env after the other.

    A sequence is the T ticks of one env. It begins with the state that acting had at that moment, which lies in the
    ring. The network reads it from there on, and begins anew with a state of zeros wherever an episode begins.
    """

    def _prepare(self) -> None:
        ticks, units = self._run_schedule.round_ticks, self._run_schedule.recurrent_units
        batch = self._learn.batch_size
        self._sequences = batch // ticks
        count = self.chunk_updates * self._sequences
        state = torch.zeros(count, 2, units, device=self._device)
        start = torch.zeros(count * ticks, device=self._device)
        self._chunk_recurrence = Recurrence(state, start)
        places = map(Recurrence, state.split(self._sequences), start.split(batch))
        pairs = zip(self._minibatches, places, strict=True)
        self._minibatches = [minibatch._replace(recurrence=place) for minibatch, place in pairs]
        self._recurrence = self._chunk_recurrence  # of the whole round: by env, and by (tick, env)
        self._env_order = np.zeros(0, np.int64)

    def load(self, number: int) -> None:
        """Copy the steps of chunk `number` into the buffer, and the states before them."""
        super().load(number)
        state, start = self._chunk_recurrence
        envs = self._env_order[number * len(state) : (number + 1) * len(state)]
        index = upload(torch.from_numpy(envs), self._device)
        torch.index_select(self._recurrence.state, 0, index, out=state[: len(envs)])
        steps = upload(torch.from_numpy(self._steps_of(envs)), self._device)
        torch.index_select(self._recurrence.start, 0, steps, out=start[: len(steps)])

    def _evaluate(self, tick: NDArray[np.int64], env: NDArray[np.int64]) -> NDArray[np.float32]:
        """Gather the stacks of (tick, env); return the outputs float32[n, outputs] of the network as it is."""
        batch, envs = self._learn.batch_size, self._run_schedule.envs
        for first in range(0, len(tick), batch):
            self._gather(tick, env, first)
        self._team.sync()  # a sequence has rows of many batches
        state, start = (upload(torch.from_numpy(each), self._device) for each in self._reader.sequences(tick, env))
        self._recurrence = Recurrence(state, start)
        parts = []
        for first in range(0, envs, self._sequences):
            those = np.arange(first, first + self._sequences)
            index = upload(torch.from_numpy(self._steps_of(those, 1)), self._device)
            recurrence = Recurrence(state[first : first + self._sequences], start[index])
            outputs = self._online.forward(self._blocks[index], 0, ExtraInputs(recurrence=recurrence)).outputs
            parts.append(outputs.view(self._sequences, -1, outputs.shape[1]))
            self._heartbeat()
        return torch.cat(parts).transpose(0, 1).flatten(0, 1).cpu().numpy()

    def _draw_order(self, round_: int, updates: int) -> NDArray[np.int64]:
        """Indices of the steps of all updates: whole envs, in a different order in every pass."""
        self._env_order = self._shuffle(round_, self._run_schedule.envs, updates * self._sequences)
        return self._steps_of(self._env_order)

    def _steps_of(self, envs: NDArray[np.int64], more: int = 0) -> NDArray[np.int64]:
        """Indices of the steps of these envs, one env after the other, and of `more` ticks that follow."""
        ticks = np.arange(self._run_schedule.round_ticks + more)
        return (envs[:, None] + ticks * self._run_schedule.envs).ravel()
