"""Answers to lanes: the actions of a policy for the newest stacks, written into the mailboxes.

The state of a recurrent network is part of the reply. The lane writes it into the slot before it steps, and the next
answer reads it there. So inference holds no state, and its death loses none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learner.networks.categorical import probabilities, sample
from learner.networks.policy import Policy, greedy
from shared.config.run_schedule import RECURRENT_STATE
from shared.memory.mailbox import Mailbox
from shared.memory.ring import plane_rows
from shared.memory.run_memory import Memory


class Answers:
    """Writer of replies. Env `e` has row `e % batch` of every batch of the policy."""

    def __init__(self, memory: Memory, policy: Policy) -> None:
        """`policy` is loaded by the caller."""
        self._ring, self._mailbox, self._policy = memory.ring, memory.mailbox, policy
        self._lane_envs, self._channels = memory.run_schedule.lane_envs, memory.run_schedule.frames.channels
        self._samples = memory.run_schedule.method.samples_actions
        self._recurrent = memory.run_schedule.recurrent_units > 0
        self._seed = memory.plan.config.run.seed

    def answer(self, lanes: NDArray[np.int64], numbers: NDArray[np.int64]) -> int:
        """Gather the newest stacks of `lanes`, which share a batch, ask the network, reply; return the rows used.

        Args:
            lanes: int64[m].
            numbers: int64[m], of their requests.
        """
        envs = (lanes[:, None] * self._lane_envs + np.arange(self._lane_envs)).ravel()
        ticks = np.repeat(Mailbox.tick_of(numbers), self._lane_envs)
        rows, mask = plane_rows(*self._ring.stack_rows(envs, ticks), self._channels)
        places = envs % self._policy.batch
        state = self._ring.recurrent_state(envs, ticks) if self._recurrent else None
        values = self._policy.values_from_rows(self._ring.planes, rows, mask, places, (envs, ticks), state)
        shape = len(lanes), self._lane_envs
        declared = {}
        if self._recurrent:
            after = self._policy.next_state[places]
            declared[RECURRENT_STATE] = after.reshape(*shape, *after.shape[1:])
        if self._samples:
            logits = values[places]
            actions, log_prob = sample(logits, self._seed, envs, ticks)
            shown, declared["log_prob"] = probabilities(logits), log_prob.reshape(shape)
        else:
            actions, shown = greedy(values)[places].astype(np.uint8), values[places]
        self._mailbox.values[lanes] = shown.reshape(*shape, -1)
        self._mailbox.answer(lanes, numbers, actions.reshape(shape), declared)
        return len(envs)
