"""The newest round as a round source: all of its steps, in a different order in every pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.networks.fused import CELL
from learner.networks.model import ExtraInputs, Model
from learner.replay.gather import GRID
from learner.replay.sampling import Batch, HostFrames
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets
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

    def __init__(
        self, ring: Ring, config: Config, online: Model, method: OnPolicyMethod, heartbeat: Callable[[], None]
    ) -> None:
        """Steps of `ring`, of which `online` computes the outputs and `method` the targets.

        Args:
            heartbeat: called after every batch of outputs: those of a large round take longer than a learner may be
                silent.
        """
        self._ring, self._learn, self._seed = ring, config.learn, config.run.seed
        self._online, self._method, self._device = online, method, method.device
        self._heartbeat = heartbeat
        self._frames = HostFrames(ring)
        self._run_schedule = ring.run_schedule
        batch = config.learn.batch_size
        self.chunk_updates = min(CHUNK_UPDATES, self._run_schedule.updates_per_round)
        n, actions, device = self.chunk_updates * batch, method.network.actions, self._device
        self._chunk = StepBatch(
            blocks=torch.zeros(n, GRID, GRID, STACK * CELL, dtype=torch.uint8, device=device),
            action_one_hot=torch.zeros(n, actions, device=device),
            **{name: torch.zeros(n, device=device) for name in StepBatch._fields[2:]},
        )
        self._minibatches = [
            StepBatch(*(buffer[first : first + batch] for buffer in self._chunk)) for first in range(0, n, batch)
        ]
        # Stacks of all ticks of a round and of the one that follows, in whole batches; the last repeats its last stack.
        batches = -(-(self._run_schedule.round_ticks + 1) * self._run_schedule.envs // batch)
        self._blocks = torch.zeros(batches * batch, GRID, GRID, STACK * CELL, dtype=torch.uint8, device=device)
        self._steps: StepBatch | None = None  # of the whole round, by (tick, env)
        self._order = np.zeros(0, np.int64)

    def capture(self) -> None:
        """Do nothing: outputs are computed once a round, by kernels launched one by one."""

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Compute the targets of the round's steps, and draw the order of `updates` updates."""
        if not updates:
            return
        tick, env = self._grid(window_end)
        rollout = self._rollout(tick, env, self._evaluate(tick, env))
        self._steps = self._columns(rollout, self._method.targets(rollout))
        self._order = self._draw_order(round_, updates)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Do nothing: the targets need the parameters with which the round begins."""

    def load(self, number: int) -> int:
        """Copy the steps of chunk `number` into the buffer."""
        assert self._steps is not None, "a round was begun"
        n = len(self._chunk.weight)
        part = self._order[number * n : (number + 1) * n]
        index = upload(torch.from_numpy(part), self._device)
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

    def _grid(self, window_end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tick and env int64[(T + 1) * N] of the round's steps and of the tick that follows, by tick and then env."""
        ticks, envs = self._run_schedule.round_ticks, self._run_schedule.envs
        tick, env = np.divmod(np.arange((ticks + 1) * envs), envs)
        return tick + window_end - ticks, env

    def _evaluate(self, tick: NDArray[np.int64], env: NDArray[np.int64]) -> NDArray[np.float32]:
        """Gather the stacks of (tick, env); return the outputs float32[n, outputs] of the network as it is."""
        batch, n = self._learn.batch_size, len(tick)
        parts = []
        for first in range(0, n, batch):
            part = np.arange(first, first + batch).clip(max=n - 1)
            blocks = self._blocks[first : first + batch]
            self._gather(env[part], tick[part], blocks)
            parts.append(self._online.forward(blocks, 0, ExtraInputs()).outputs)
            self._heartbeat()
        outputs: NDArray[np.float32] = torch.cat(parts)[:n].flatten(1).cpu().numpy()
        return outputs

    def _gather(self, env: NDArray[np.int64], tick: NDArray[np.int64], out: Tensor) -> None:
        """Write the stacks of (env, tick) as blocks into `out`."""
        rows, mask = self._ring.stack_rows(env, tick)
        batch = Batch(
            rows=torch.from_numpy(rows),
            frame_mask=torch.from_numpy(mask.astype(np.uint8)[:, :, None, None]),
            action=torch.empty(0),
            reward=torch.empty(0),
            discount=torch.empty(0),
        )
        self._frames.select(batch, out)

    def _rollout(self, tick: NDArray[np.int64], env: NDArray[np.int64], outputs: NDArray[np.float32]) -> Rollout:
        """The round's steps, from their slots."""
        ticks, envs = self._run_schedule.round_ticks, self._run_schedule.envs
        rows = self._ring.rows(env, tick)[: ticks * envs].reshape(ticks, envs)
        slots = {name: field[rows] for name, field in self._ring.flat.items() if name != "frame"}
        terminal, reward = (slots["terminated"] | slots["life_lost"]) != 0, slots["raw_reward"]
        return Rollout(
            reward=np.sign(reward) if self._learn.clip_rewards else reward,
            terminal=terminal,
            ended=terminal | (slots["truncated"] != 0),
            valid=slots["valid"] != 0,
            action=slots["action"].astype(np.int64),
            log_prob=slots["log_prob"] if "log_prob" in slots else np.zeros_like(reward),
            outputs=outputs.reshape(ticks + 1, envs, -1),
            discount=self._learn.discount,
        )

    def _columns(self, rollout: Rollout, targets: StepTargets) -> StepBatch:
        """All steps of the round, by (tick, env), on the learner's device."""
        action = torch.from_numpy(rollout.action.reshape(-1))
        one_hot = torch.nn.functional.one_hot(action, self._method.network.actions).float()
        numbers = {"log_prob": rollout.log_prob, **targets._asdict()}
        columns = {name: torch.from_numpy(np.ascontiguousarray(each).reshape(-1)) for name, each in numbers.items()}
        columns["action_one_hot"] = one_hot
        columns = {name: upload(each, self._device) for name, each in columns.items()}
        return StepBatch(self._blocks[: len(action)], **columns)

    def _draw_order(self, round_: int, updates: int) -> NDArray[np.int64]:
        """Indices of the steps of all updates: a permutation for each pass over the round, by Philox counters."""
        steps, used = self._run_schedule.round_steps, updates * self._learn.batch_size
        passes = -(-used // steps)
        key = bits(self._seed, Stream.MINIBATCH, round_)
        orders = [np.random.Generator(np.random.Philox(key=[key, i])).permutation(steps) for i in range(passes)]
        return np.concatenate(orders)[:used]
