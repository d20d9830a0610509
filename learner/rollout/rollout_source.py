"""The newest round as a round source: all of its steps, in a different order in every pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.networks.fused import CELL
from learner.networks.model import ExtraInputs, Model
from learner.replay.gather import GRID
from learner.replay.sampling import Batch, HostFrames
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch
from shared.config.settings import STACK, Config
from shared.memory.ring import Ring
from shared.prng import Stream, bits

CHUNK_UPDATES = 8
"""Most updates of a chunk."""


class RolloutSource:
    """Steps of the round before `window_end`, with targets from the network at the beginning of the updates.

    At the beginning of a round the network's outputs are computed for all T + 1 ticks, in batches of one shape. The
    last tick opens the next round; its value bootstraps episodes that continue. All T * N steps are permuted, so their
    number is fixed. A step without an action has weight 0.
    """

    buffers = 1
    device_bytes = 0

    def __init__(self, ring: Ring, config: Config, online: Model, method: OnPolicyMethod) -> None:
        """Steps of `ring`, of which `online` computes the outputs and `method` the targets."""
        self._ring, self._learn, self._seed = ring, config.learn, config.run.seed
        self._online, self._method = online, method
        self._frames = HostFrames(ring)
        self._run_schedule = ring.run_schedule
        batch = config.learn.batch_size
        self.chunk_updates = min(CHUNK_UPDATES, self._run_schedule.updates_per_round)
        n, actions, device = self.chunk_updates * batch, method.network.actions, method.device
        self._chunk = StepBatch(
            blocks=torch.zeros(n, GRID, GRID, STACK * CELL, dtype=torch.uint8, device=device),
            action_one_hot=torch.zeros(n, actions, device=device),
            **{name: torch.zeros(n, device=device) for name in StepBatch._fields[2:]},
        )
        self._minibatches = [
            StepBatch(*(buffer[first : first + batch] for buffer in self._chunk)) for first in range(0, n, batch)
        ]
        self._steps: StepBatch | None = None  # of the whole round, by (tick, env)
        self._order = np.zeros(0, np.int64)

    def capture(self) -> None:
        """Do nothing: outputs are computed once a round, by kernels launched one by one."""

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Compute the targets of the round's steps, and draw the order of `updates` updates."""
        if not updates:
            return
        ticks, envs = self._run_schedule.round_ticks, self._run_schedule.envs
        tick, env = np.divmod(np.arange((ticks + 1) * envs), envs)
        tick += window_end - ticks
        blocks = self._gather(env, tick)
        outputs = self._outputs(blocks).reshape(ticks + 1, envs, -1)
        rows, steps = self._ring.rows(env, tick)[: ticks * envs], ticks * envs
        flat = {name: field[rows] for name, field in self._ring.flat.items() if name != "frame"}
        terminal = (flat["terminated"] | flat["life_lost"]) != 0
        reward = flat["raw_reward"]
        rollout = Rollout(
            reward=(np.sign(reward) if self._learn.clip_rewards else reward).reshape(ticks, envs),
            terminal=terminal.reshape(ticks, envs),
            ended=(terminal | (flat["truncated"] != 0)).reshape(ticks, envs),
            valid=(flat["valid"] != 0).reshape(ticks, envs),
            action=flat["action"].astype(np.int64).reshape(ticks, envs),
            log_prob=flat["log_prob"].reshape(ticks, envs),
            outputs=outputs,
            discount=self._learn.discount,
        )
        targets = self._method.targets(rollout)
        actions = torch.from_numpy(flat["action"].astype(np.int64))
        one_hot = torch.nn.functional.one_hot(actions, self._method.network.actions).float()
        numbers = (rollout.log_prob, targets.advantage, targets.value, targets.weight)
        columns = [torch.from_numpy(np.ascontiguousarray(each).reshape(steps)) for each in numbers]
        self._steps = StepBatch(blocks[:steps], *(upload(each, self._method.device) for each in (one_hot, *columns)))
        self._order = self._draw_order(round_, steps, updates)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Do nothing: the targets need the parameters with which the round begins."""

    def load(self, number: int) -> int:
        """Copy the steps of chunk `number` into the buffer."""
        assert self._steps is not None, "a round was begun"
        n = len(self._chunk.weight)
        part = self._order[number * n : (number + 1) * n]
        index = upload(torch.from_numpy(part), self._method.device)
        for buffer, steps in zip(self._chunk, self._steps, strict=True):
            torch.index_select(steps, 0, index, out=buffer[: len(part)])
        return 0

    def minibatch(self, buffer: int, index: int) -> StepBatch:
        """Views of the steps of one update."""
        return self._minibatches[index]

    def finish_round(self, done: int) -> None:
        """Do nothing: a round is used once."""

    def settle(self) -> None:
        """Do nothing: there is no second thread."""

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def store(self, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Do nothing: there is no state."""

    def load_state(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Do nothing: there is no state."""

    def _gather(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> Tensor:
        """Blocks uint8[n, 21, 21, 64] of the stacks of (env, tick), on the learner's device."""
        rows, mask = self._ring.stack_rows(env, tick)
        n = len(rows)
        batch = Batch(
            rows=torch.from_numpy(rows),
            frame_mask=torch.from_numpy(mask.astype(np.uint8)[:, :, None, None]),
            action=torch.empty(0),
            reward=torch.empty(0),
            discount=torch.empty(0),
        )
        blocks = torch.empty(n, GRID, GRID, STACK * CELL, dtype=torch.uint8, device=self._method.device)
        self._frames.select(batch, blocks)
        return blocks

    def _outputs(self, blocks: Tensor) -> NDArray[np.float32]:
        """float32[n, outputs] of the network as it is; the last batch is padded by its own rows."""
        batch = self._learn.batch_size
        parts = []
        for first in range(0, len(blocks), batch):
            index = torch.arange(first, first + batch, device=blocks.device).clamp_(max=len(blocks) - 1)
            parts.append(self._online.forward(blocks[index], 0, ExtraInputs()).outputs)
        outputs: NDArray[np.float32] = torch.cat(parts)[: len(blocks)].flatten(1).cpu().numpy()
        return outputs

    def _draw_order(self, round_: int, steps: int, updates: int) -> NDArray[np.int64]:
        """Indices of the steps of all updates: a permutation for each pass over the round, by Philox counters."""
        used = updates * self._learn.batch_size
        passes = -(-used // steps)
        key = bits(self._seed, Stream.MINIBATCH, round_)
        orders = [np.random.Generator(np.random.Philox(key=[key, i])).permutation(steps) for i in range(passes)]
        return np.concatenate(orders)[:used]
