"""The newest round as a round source: all of its steps, in a different order in every pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.engine.interfaces import CHUNK_UPDATES, RoundSource
from learner.networks.model import ExtraInputs, Model
from learner.rollout.on_policy_method import STEP_NUMBERS, OnPolicyMethod, StepBatch
from learner.rollout.step_reader import StepReader
from learner.team.team import Team, slices
from shared.config.settings import Config
from shared.memory.ring import Ring
from shared.prng import Stream, bits, philox


class RolloutSource(RoundSource[StepBatch]):
    """Steps of the round before `window_end`, with targets from the network at the beginning of the updates.

    At the beginning of a round the network's outputs are computed for all T + 1 ticks, in batches of one shape. The
    last tick opens the next round; its value bootstraps episodes that continue. All T * N steps are permuted, so their
    number is fixed. A step without an action has weight 0.
    """

    buffers = 1
    device_bytes = 0

    def __init__(
        self,
        ring: Ring,
        config: Config,
        online: Model,
        method: OnPolicyMethod,
        heartbeat: Callable[[], None],
        team: Team,
    ) -> None:
        """Steps of `ring`, of which `online` computes the outputs and `method` the targets.

        Args:
            team: members that gather the stacks together, each its parts of the rows.
            heartbeat: called after every batch of outputs: those of a large round take longer than a learner may be
                silent.
        """
        self._learn, self._seed = config.learn, config.run.seed
        self._online, self._method, self._device = online, method, method.device
        self._heartbeat, self._team, self._parts = heartbeat, team, config.machine.learner_parts or 1
        self._run_schedule = ring.run_schedule
        self._reader = StepReader(ring, config.learn, method, range(ring.run_schedule.envs))
        batch, frames = config.learn.batch_size, ring.run_schedule.frames
        self.chunk_updates = min(CHUNK_UPDATES, self._run_schedule.updates_per_round)
        n, actions, device = self.chunk_updates * batch, method.network.actions, self._device
        self._chunk = StepBatch(
            blocks=team.zeros(*frames.blocks(n), dtype=torch.uint8, device=device),
            action_one_hot=torch.zeros(n, actions, device=device),
            recurrence=None,
            **{name: torch.zeros(n, device=device) for name in STEP_NUMBERS},
        )
        columns = zip(*(each.split(batch) for each in self._chunk.columns.values()), strict=True)
        self._minibatches = [StepBatch._make((*fields, None)) for fields in columns]  # none is recurrent
        # Stacks of all ticks of a round and of the one that follows, in whole batches; the last repeats its last stack.
        batches = -(-(self._run_schedule.round_ticks + 1) * self._run_schedule.envs // batch)
        self._blocks = team.zeros(*frames.blocks(batches * batch), dtype=torch.uint8, device=device)
        self._steps: StepBatch | None = None  # of the whole round, by (tick, env)
        self._order = np.zeros(0, np.int64)
        self._prepare()

    def _prepare(self) -> None:
        """Make further buffers."""

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Compute the targets of the round's steps, and draw the order of `updates` updates."""
        if not updates:
            return
        tick, env = self._reader.grid(window_end)
        rollout = self._reader.rollout(tick, env, self._evaluate(tick, env))
        self._steps = self._reader.columns(rollout, self._method.targets(rollout), self._blocks)
        self._order = self._draw_order(round_, updates)

    def load(self, number: int) -> None:
        """Copy the steps of chunk `number` into the buffer."""
        assert self._steps is not None, "a round was begun"
        n = len(self._chunk.weight)
        part = self._order[number * n : (number + 1) * n]
        index = upload(torch.from_numpy(part), self._device)
        steps = self._steps.columns
        for name, buffer in self._chunk.columns.items():
            rows = self._own_rows(len(part)) if name == "blocks" else slice(0, len(part))
            torch.index_select(steps[name], 0, index[rows], out=buffer[rows])
        self._team.sync()

    def minibatch(self, buffer: int, index: int) -> StepBatch:
        """Views of the steps of one update."""
        return self._minibatches[index]

    def _evaluate(self, tick: NDArray[np.int64], env: NDArray[np.int64]) -> NDArray[np.float32]:
        """Gather the stacks of (tick, env); return the outputs float32[n, outputs] of the network as it is."""
        parts = []
        for first in range(0, len(tick), self._learn.batch_size):
            parts.append(self._online.forward(self._gather(tick, env, first), 0, ExtraInputs()).outputs)
            self._heartbeat()
        return torch.cat(parts)[: len(tick)].flatten(1).cpu().numpy()

    def _gather(self, tick: NDArray[np.int64], env: NDArray[np.int64], first: int) -> Tensor:
        """Gather a batch of the stacks of (tick, env), from that of index `first` on; return their blocks.

        Each member gathers the rows of its parts.
        """
        part = np.arange(first, first + self._learn.batch_size).clip(max=len(tick) - 1)
        blocks, own = self._blocks[first : first + self._learn.batch_size], self._own_rows(len(part))
        self._reader.gather(env[part[own]], tick[part[own]], blocks[own])
        return blocks

    def _own_rows(self, count: int) -> slice:
        """The rows of `count` that this member copies: those of its parts, which lie side by side."""
        cuts = slices(count, self._parts)
        own = self._team.written(self._parts)
        return slice(cuts[own.start].start, cuts[own.stop - 1].stop)

    def _draw_order(self, round_: int, updates: int) -> NDArray[np.int64]:
        """Indices of the steps of all updates, in a different order in every pass over the round."""
        return self._shuffle(round_, self._run_schedule.round_steps, updates * self._learn.batch_size)

    def _shuffle(self, round_: int, count: int, used: int) -> NDArray[np.int64]:
        """The first `used` of permutations of `count` numbers, one for each pass over a round, by Philox counters."""
        passes = -(-used // count)
        key = bits(self._seed, Stream.MINIBATCH, round_)
        orders = [philox(key, i).permutation(count) for i in range(passes)]
        return np.concatenate(orders)[:used]
