"""One-step Sarsa of workers (Mnih et al. 2016, section 4)."""

from __future__ import annotations

import numpy as np

from learner.rollout.action_values import ActionValues, lambda_targets
from learner.rollout.on_policy_method import Rollout, StepTargets


class Sarsa(ActionValues):
    """G_t = r_t + gamma Q^(o_(t+1), a_(t+1)), Q^ being the target network.

    The action that follows the last step of a round is the one that the policy of the round takes there.
    """

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        action = np.concatenate([rollout.action, rollout.next_action[None]])
        values = np.take_along_axis(rollout.target_outputs, action[:, :, None], axis=2)[:, :, 0]
        return lambda_targets(rollout, values, trace=0.0)
