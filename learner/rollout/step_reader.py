"""Rollouts, read from the rings as an on-policy method wants them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.replay.replay_frames import HostFrames
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets
from shared.config.run_schedule import RECURRENT_STATE
from shared.config.sections import Learn
from shared.memory.ring import Ring, plane_rows


class StepReader:
    """Reads the steps of some envs: all of a run's, or those of one worker."""

    def __init__(self, ring: Ring, learn: Learn, method: OnPolicyMethod, envs: range) -> None:
        """A rollout has the ticks of a round."""
        self._ring, self._learn, self._method, self._envs = ring, learn, method, envs
        self._ticks = ring.run_schedule.round_ticks
        self._frames = HostFrames(ring)

    def grid(self, window_end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tick and env int64[(T + 1) * N] of the rollout's steps and of the tick that follows, by tick and then env."""
        n = len(self._envs)
        tick, env = np.divmod(np.arange((self._ticks + 1) * n), n)
        return tick + window_end - self._ticks, env + self._envs.start

    def gather(self, env: NDArray[np.int64], tick: NDArray[np.int64], out: Tensor) -> None:
        """Write the stacks of (env, tick) as blocks into `out`."""
        rows, mask = plane_rows(*self._ring.stack_rows(env, tick), self._ring.run_schedule.frames.channels)
        self._frames.select(torch.from_numpy(rows), torch.from_numpy(mask.astype(np.uint8)), out)

    def rollout(self, tick: NDArray[np.int64], env: NDArray[np.int64], outputs: NDArray[np.float32]) -> Rollout:
        """The rollout, from its slots; `outputs` [(T + 1) * N, outputs] are those of `grid`."""
        ticks, envs = self._ticks, len(self._envs)
        rows = self._ring.rows(env, tick)[: ticks * envs].reshape(ticks, envs)
        large = ("frame", RECURRENT_STATE)
        slots = {name: field[rows] for name, field in self._ring.flat.items() if name not in large}
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

    def sequences(
        self, tick: NDArray[np.int64], env: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """State [N, 2, units] of a recurrent network before the rollout, and 1 [(T + 1) * N] where an episode begins.

        Arguments are those of `grid`.
        """
        n = len(self._envs)
        start = self._ring.flat["start"][self._ring.rows(env, tick)] != 0
        return self._ring.recurrent_state(env[:n], tick[:n]), start.astype(np.float32)

    def columns(self, rollout: Rollout, targets: StepTargets, blocks: Tensor) -> StepBatch:
        """All steps of the rollout, by (tick, env), on the method's device; `blocks` are the stacks of `grid`."""
        method = self._method
        action = torch.from_numpy(rollout.action.reshape(-1))
        numbers = {"log_prob": rollout.log_prob, **targets._asdict()}
        columns = {name: torch.from_numpy(np.ascontiguousarray(each).reshape(-1)) for name, each in numbers.items()}
        columns["action_one_hot"] = torch.nn.functional.one_hot(action, method.network.actions).float()
        uploaded = {name: upload(each, method.device) for name, each in columns.items()}
        return StepBatch(blocks[: len(action)], recurrence=None, **uploaded)
