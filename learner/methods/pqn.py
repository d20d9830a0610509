"""PQN: Q(lambda) of the newest round, without replay buffer or target network (Gallici et al. 2024)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets
from shared.config.method_declaration import PQNSettings


class PQN(OnPolicyMethod):
    """loss = (Q(s, a) - G)^2 / 2, its weighted mean over the steps.

    G_t = r_t + gamma (lambda G_(t+1) + (1 - lambda) max_a Q(o_(t+1), a)) is Peng's Q(lambda), with the online network
    at the beginning of the round. It is the lambda-return of the values max_a Q.
    """

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns G, and how much they exceed Q(s, a)."""
        settings = self.algorithm.settings
        assert isinstance(settings, PQNSettings), "the declaration of pqn names them"
        best = rollout.outputs.max(axis=2)
        returns = generalized_advantages(rollout, best, settings.trace) + best[:-1]
        taken = np.take_along_axis(rollout.outputs[:-1], rollout.action[:, :, None], axis=2)[:, :, 0]
        numbers = (returns - taken, returns, rollout.valid, taken)
        return StepTargets(*(each.astype(np.float32) for each in numbers))

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, sampled: bool) -> UpdateOutput:
        """Gradient of the loss, written out."""
        q, taken = self.values(outputs), minibatch.action_one_hot
        error = (q * taken).sum(1) - minibatch.returns
        mean = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)
        gradient = (mean * error)[:, None] * taken
        best, scale = q.amax(1), mean * len(mean)  # a mean over all steps is then the weighted mean
        metrics = {"loss": error.square() / 2 * scale, "mean_q": best * scale}
        if sampled:
            metrics["q_spread"] = best.std(correction=0)
        return UpdateOutput(gradient[:, :, None], metrics)
