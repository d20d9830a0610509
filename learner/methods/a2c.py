"""A2C: synchronous advantage actor-critic (Mnih et al. 2016, in the form of OpenAI Baselines)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets
from shared.config.method_declaration import ActorCriticSettings


class A2C(OnPolicyMethod):
    """loss = -A log pi(a|s) + value_weight / 2 (V - G)^2 - entropy_weight H(pi), its weighted mean over the steps."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Advantages A, and returns G = A + V."""
        values = rollout.outputs[:, :, -1]
        advantage = generalized_advantages(
            rollout.reward,
            values,
            terminal=rollout.terminal,
            ended=rollout.ended,
            valid=rollout.valid,
            discount=rollout.discount,
            trace=self._settings.trace,
        )
        returns = advantage + values[:-1]
        return StepTargets(advantage.astype(np.float32), returns.astype(np.float32), rollout.valid.astype(np.float32))

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, sampled: bool) -> UpdateOutput:
        """Gradient of the loss, written out."""
        settings, actions = self._settings, self.network.actions
        log_policy = torch.log_softmax(outputs[:, :actions, 0], 1)
        policy, value = log_policy.exp(), outputs[:, actions, 0]
        entropy = -(policy * log_policy).sum(1)
        error = value - minibatch.value
        share = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)

        # By the logits: d(-log pi(a)) = pi - onehot(a), and d(-H) = pi (log pi + H).
        by_logits = minibatch.advantage[:, None] * (policy - minibatch.action_one_hot)
        by_logits += settings.entropy_weight * policy * (log_policy + entropy[:, None])
        gradient = torch.cat([by_logits, settings.value_weight * error[:, None]], 1) * share[:, None]

        log_prob = (log_policy * minibatch.action_one_hot).sum(1)
        loss = settings.value_weight / 2 * error.square() - settings.entropy_weight * entropy
        loss -= minibatch.advantage * log_prob
        scale = share * len(share)  # a mean over all steps is then the weighted mean
        metrics = {"loss": loss * scale, "mean_value": value * scale, "entropy": entropy * scale}
        return UpdateOutput(gradient[:, :, None], metrics)

    @property
    def _settings(self) -> ActorCriticSettings:
        settings = self.algorithm.settings
        assert isinstance(settings, ActorCriticSettings), "the declaration of a2c names them"
        return settings
