"""One-step Q-learning of workers (Mnih et al. 2016, algorithm 1)."""

from __future__ import annotations

from learner.rollout.action_values import ActionValues, lambda_targets
from learner.rollout.on_policy_method import Rollout, StepTargets


class OneStepQ(ActionValues):
    """G_t = r_t + gamma max_a Q^(o_(t+1), a), Q^ being the target network."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        return lambda_targets(rollout, rollout.target_outputs.max(axis=2), trace=0.0)
