"""The loss of action values that learn returns of the newest round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets


class ActionValues(OnPolicyMethod):
    """loss = (Q(s, a) - G)^2 / 2, its weighted mean over the steps, or with `mean_gradient = False` the sum."""

    def sum_losses(self) -> None:
        """Have `learn` give the gradient of the sum."""
        self.mean_gradient = False

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, sampled: bool) -> UpdateOutput:
        """Gradient of the loss, written out."""
        q, taken = self.values(outputs), minibatch.action_one_hot
        error = (q * taken).sum(1) - minibatch.returns
        mean = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)
        gradient = ((mean if self.mean_gradient else minibatch.weight) * error)[:, None] * taken
        best, scale = q.amax(1), mean * len(mean)  # a mean over all steps is then the weighted mean
        metrics = {"loss": error.square() / 2 * scale, "mean_q": best * scale}
        if sampled:
            metrics["q_spread"] = best.std(correction=0)
        return UpdateOutput(gradient[:, :, None], metrics)


def value_targets(rollout: Rollout, returns: NDArray[np.float64]) -> StepTargets:
    """Targets of action values: returns G [T, N], and how much they exceed Q(s, a)."""
    taken = np.take_along_axis(rollout.outputs[:-1], rollout.action[:, :, None], axis=2)[:, :, 0]
    numbers = (returns - taken, returns, rollout.valid, taken)
    return StepTargets(*(each.astype(np.float32) for each in numbers))
