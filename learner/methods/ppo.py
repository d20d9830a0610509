"""PPO: proximal policy optimization with clipped losses (Schulman et al. 2017; details as in CleanRL's ppo_atari)."""

from __future__ import annotations

import torch
from torch import Tensor

from learner.methods.a2c import A2C
from learner.rollout.actor_critic import EvaluatedSteps, LossPart, weighted_moments
from learner.rollout.on_policy_method import StepBatch
from shared.config.method_declaration import PPOSettings

TINY = 1e-8
"""Added to the standard deviation of advantages."""


class PPO(A2C):
    """policy loss = -min(r A, clip(r, 1 - e, 1 + e) A), with r = pi(a|s) / mu(a|s) (equation 7).

    mu is the policy that acted, e is `clip_ratio`. The value loss is the greater one of (V - G)^2 / 2 and that of
    V clipped to `old_value` +- e. Targets are A2C's.
    """

    def policy_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """The clipped surrogate objective; where the clipped ratio counts, it has no gradient."""
        clip, normalizes = self.annealed["clip_ratio"], self.settings_as(PPOSettings).normalize_advantage
        advantage = self._normalized(minibatch) if normalizes else minibatch.advantage
        clipped_ratio = now.ratio.clamp(1.0 - clip, 1.0 + clip)
        plain, clipped = -now.ratio * advantage, -clipped_ratio * advantage
        # By log pi: d r / d log pi = r.
        gradient = plain * (plain >= clipped)
        outside = ((now.ratio - 1.0).abs() > clip).float()
        return LossPart(torch.maximum(plain, clipped), gradient, {"clip_fraction": outside})

    def value_loss(self, now: EvaluatedSteps, minibatch: StepBatch) -> LossPart:
        """Half the squared error, clipped with `clip_value`; where the clipped value counts, it has no gradient."""
        old, clip = minibatch.old_value, self.annealed["clip_ratio"]
        plain = super().value_loss(now, minibatch)
        if not self.settings_as(PPOSettings).clip_value:
            return plain
        change = now.value - old
        clipped = (old + change.clamp(-clip, clip) - minibatch.returns).square() / 2
        # Inside, `old + change` may be rounded away from V; so the difference decides, not the losses.
        counts = (change.abs() <= clip) | (plain.loss >= clipped)
        return LossPart(torch.maximum(plain.loss, clipped), plain.gradient * counts)

    def _normalized(self, minibatch: StepBatch) -> Tensor:
        """Advantages less their mean, by their standard deviation, both over the steps with an action."""
        mean, variance = weighted_moments(minibatch.advantage, minibatch.weight)
        return (minibatch.advantage - mean) / (variance.sqrt() + TINY)
