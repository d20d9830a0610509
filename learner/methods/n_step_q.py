"""n-step Q-learning of workers (Mnih et al. 2016, algorithm S2)."""

from __future__ import annotations

from learner.rollout.action_values import ActionValues, lambda_targets
from learner.rollout.on_policy_method import Rollout, StepTargets


class NStepQ(ActionValues):
    """G_t is the discounted sum of the rewards to the end of the round, then max_a Q^(o, a) of the target network."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        return lambda_targets(rollout, rollout.target_outputs.max(axis=2), trace=1.0)
