"""A3C on batches: the form of tensorpack's A3C-Gym of the asynchronous actor-critic (Mnih et al. 2016)."""

from __future__ import annotations

import numpy as np

from learner.methods.a2c import A2C
from learner.rollout.actor_critic import EvaluatedSteps, LossPart
from learner.rollout.on_policy_method import Rollout, StepBatch, StepTargets
from shared.config.method_declaration import A3CSettings


class A3C(A2C):
    """policy loss = -min(rho_max, pi(a|s) / mu(a|s)) (G - V) log pi(a|s), value loss = (V - G)^2 / 2.

    mu is the policy that acted; the importance and V are those of the update, without gradient. A return G has at most
    `return_steps` rewards. It is bootstrapped from the network at the beginning of the round; tensorpack bootstraps it
    from the network that acted.
    """

    def targets(self, rollout: Rollout) -> StepTargets:
        """Targets of A2C, whose returns begin anew after every `return_steps` ticks of the round."""
        last = np.arange(1, len(rollout.ended) + 1) % self.settings_as(A3CSettings).return_steps == 0
        return super().targets(rollout._replace(ended=rollout.ended | last[:, None]))

    def policy_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """The policy gradient, with truncated importance."""
        importance = now.ratio.clamp(max=self.settings_as(A3CSettings).rho_max)
        weighted = importance * (minibatch.returns - now.value)
        return LossPart(-weighted * now.log_prob, -weighted)
