"""PQN: Q(lambda) of the newest round, without replay buffer or target network (Gallici et al. 2024)."""

from __future__ import annotations

from learner.rollout.action_values import ActionValues, lambda_targets
from learner.rollout.on_policy_method import Rollout, StepTargets
from shared.config.method_declaration import PQNSettings


class PQN(ActionValues):
    """G_t = r_t + gamma (lambda G_(t+1) + (1 - lambda) max_a Q(o_(t+1), a)): Peng's Q(lambda).

    Q is the online network at the beginning of the round, and G the lambda-return of the values max_a Q.
    """

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G."""
        return lambda_targets(rollout, rollout.outputs.max(axis=2), self.settings_as(PQNSettings).trace)
