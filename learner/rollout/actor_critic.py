"""The loss of an actor-critic: a policy, a value of the state, and the policy's entropy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets
from shared.config.method_declaration import ActorCriticSettings

MOST_LOG_RATIO = 20.0
"""Greatest difference of two logarithms of probabilities, beyond which ratios count as equal."""


class EvaluatedSteps(NamedTuple):
    """The steps of a minibatch by the policy and the value that learn, float32[n] each."""

    log_prob: Tensor
    """log pi(a|s)."""
    log_ratio: Tensor
    """log pi(a|s) - log mu(a|s), mu being the policy that acted."""
    ratio: Tensor
    """pi(a|s) / mu(a|s)."""
    value: Tensor
    """V(s)."""


class LossPart(NamedTuple):
    """The policy's or the value's part of the loss, for each step."""

    loss: Tensor
    """float32[n]."""
    gradient: Tensor
    """float32[n]: by log pi(a|s) for the policy's part, by V(s) for the value's."""
    metrics: Mapping[str, Tensor] = MappingProxyType({})
    """Metrics float32[n] of its own."""


class ActorCritic(OnPolicyMethod):
    """loss = policy loss + value_weight * value loss - entropy_weight * H(pi) (Mnih et al. 2016, section 4).

    A weighted mean over the steps of the minibatch, or with `mean_gradient = False` the sum.
    """

    can_sum_losses = True

    @abstractmethod
    def policy_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """Loss of the policy, and its gradient by log pi(a|s)."""

    def value_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """Half the squared error, (V - G)^2 / 2."""
        error = now.value - minibatch.returns
        return LossPart(error.square() / 2, error)

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, costly_metrics: bool) -> UpdateOutput:
        """Gradient of the loss, written out."""
        taken, value_weight = minibatch.action_one_hot, self.settings_as(ActorCriticSettings).value_weight
        entropy_weight = self.annealed["entropy_weight"]
        log_policy = torch.log_softmax(self.values(outputs), 1)
        policy = log_policy.exp()
        entropy = -(policy * log_policy).sum(1)
        log_prob = (log_policy * taken).sum(1)
        log_ratio = (log_prob - minibatch.log_prob).clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO)
        now = EvaluatedSteps(log_prob, log_ratio, log_ratio.exp(), value=outputs[:, -1, 0])
        actor, critic = self.policy_loss(now, minibatch), self.value_loss(now, minibatch)
        mean = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)

        # By the logits: d log pi(a) = onehot(a) - pi, and d(-H) = pi (log pi + H).
        by_logits = actor.gradient[:, None] * (taken - policy)
        by_logits += entropy_weight * policy * (log_policy + entropy[:, None])
        by_value = value_weight * critic.gradient
        gradient = torch.cat([by_logits, by_value[:, None]], 1)
        gradient *= (mean if self.mean_gradient else minibatch.weight)[:, None]

        metrics = {
            "loss": actor.loss + value_weight * critic.loss - entropy_weight * entropy,
            "mean_value": now.value,
            "entropy": entropy,
            "kl": now.ratio - 1.0 - now.log_ratio,
            **actor.metrics,
            **critic.metrics,
        }
        scale = mean * len(mean)  # a mean over all steps is then the weighted mean
        means = {name: values * scale for name, values in metrics.items()}
        if costly_metrics:
            means["explained_variance"] = explained_variance(minibatch)
        return UpdateOutput(gradient[:, :, None], means)


def step_targets(rollout: Rollout, advantage: NDArray[np.float64], returns: NDArray[np.float64]) -> StepTargets:
    """Targets of an actor-critic, whose old values are those of the outputs; a step without an action has weight 0."""
    numbers = (advantage, returns, rollout.valid, rollout.outputs[:-1, :, -1])
    return StepTargets(*(each.astype(np.float32) for each in numbers))


def weighted_moments(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of x float32[n] over the steps of weight 1, the variance with n - 1 in the denominator."""
    count = weight.sum()
    mean = (weight * x).sum() / count.clamp(min=1.0)
    return mean, (weight * (x - mean).square()).sum() / (count - 1.0).clamp(min=1.0)


def explained_variance(minibatch: StepBatch) -> Tensor:
    """1 - Var(G - V) / Var(G), V being the old value; at least -1, and 0 where all returns are equal."""
    mean, variance = weighted_moments(minibatch.returns, minibatch.weight)
    _, left = weighted_moments(minibatch.returns - minibatch.old_value, minibatch.weight)
    explained = (1.0 - left / variance).clamp(min=-1.0)
    # The mean of equal returns is rounded, which leaves a variance of up to some 1e-14 of its square.
    return torch.where(variance > 1e-12 * mean.square(), explained, torch.zeros_like(explained))
