"""The action-value methods of workers (Mnih et al. 2016): one-step Q-learning, one-step Sarsa and n-step Q-learning.

Q^ is the target network.
"""

from __future__ import annotations

import numpy as np

from learner.rollout.action_values import ActionValues, lambda_targets
from learner.rollout.on_policy_method import Rollout, StepTargets


class OneStepQ(ActionValues):
    """G_t = r_t + gamma max_a Q^(o_(t+1), a) (algorithm 1)."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        return lambda_targets(rollout, rollout.target_outputs.max(axis=2), trace=0.0)


class Sarsa(ActionValues):
    """G_t = r_t + gamma Q^(o_(t+1), a_(t+1)) (section 4).

    The action that follows the last step of a round is the one that the policy of the round takes there.
    """

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        action = np.concatenate([rollout.action, rollout.next_action[None]])
        values = np.take_along_axis(rollout.target_outputs, action[:, :, None], axis=2)[:, :, 0]
        return lambda_targets(rollout, values, trace=0.0)


class NStepQ(ActionValues):
    """G_t is the discounted sum of the rewards to the end of the round, then max_a Q^(o, a) (algorithm S2)."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        return lambda_targets(rollout, rollout.target_outputs.max(axis=2), trace=1.0)
