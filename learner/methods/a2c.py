"""A2C: synchronous advantage actor-critic (Mnih et al. 2016, in the form of OpenAI Baselines)."""

from __future__ import annotations

from learner.rollout.actor_critic import ActorCritic, EvaluatedSteps, LossPart, step_targets
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import Rollout, StepBatch, StepTargets
from shared.config.method_declaration import ActorCriticSettings


class A2C(ActorCritic):
    """policy loss = -A log pi(a|s), value loss = (V - G)^2 / 2."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Advantages A, and returns G = A + V."""
        values = rollout.outputs[:, :, -1]
        advantage = generalized_advantages(rollout, values, self.settings_as(ActorCriticSettings).trace)
        return step_targets(rollout, advantage, advantage + values[:-1])

    def policy_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """-A log pi(a|s)."""
        return LossPart(-minibatch.advantage * now.log_prob, -minibatch.advantage)
