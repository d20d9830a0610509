"""The loss of action values that learn returns of the newest round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets


class ActionValues(OnPolicyMethod):
    """loss = (Q(s, a) - G)^2 / 2, its weighted mean over the steps, or with `mean_gradient = False` the sum."""

    can_sum_losses = True

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, costly_metrics: bool) -> UpdateOutput:
        """Gradient of the loss, written out."""
        q, taken = self.values(outputs), minibatch.action_one_hot
        error = (q * taken).sum(1) - minibatch.returns
        mean = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)
        gradient = ((mean if self.mean_gradient else minibatch.weight) * error)[:, None] * taken
        best, scale = q.amax(1), mean * len(mean)  # a mean over all steps is then the weighted mean
        metrics = {"loss": error.square() / 2 * scale, "mean_q": best * scale}
        if costly_metrics:
            metrics["q_spread"] = best.std(correction=0)
        return UpdateOutput(gradient[:, :, None], metrics)


def lambda_targets(rollout: Rollout, values: NDArray[np.floating], trace: float) -> StepTargets:
    """Targets of action values: lambda-returns G of the values of the states, and how much they exceed Q(s, a).

    G_t = r_t + gamma (lambda G_(t+1) + (1 - lambda) V_(t+1)): with lambda 0 the one-step return, with 1 the n-step one.

    Args:
        values: V(o_t) [T + 1, N]; the last row bootstraps episodes that continue after the round.
        trace: lambda.
    """
    returns = generalized_advantages(rollout, values, trace) + values[:-1]
    taken = np.take_along_axis(rollout.outputs[:-1], rollout.action[:, :, None], axis=2)[:, :, 0]
    numbers = (returns - taken, returns, rollout.valid, taken)
    return StepTargets(*(each.astype(np.float32) for each in numbers))
