"""DQN: the mean of the return (Mnih et al. 2015)."""

from __future__ import annotations

from torch import Tensor

from learner.losses.method import LossOutput, NextState, ValueMethod
from learner.losses.scalar_loss import bellman_target, clipped_error


class DQN(ValueMethod):
    """One output for each action: Q(s, a)."""

    scalar_target = True

    def values(self, outputs: Tensor) -> Tensor:
        """The outputs themselves."""
        return outputs[..., 0]

    def target(self, next_state: NextState) -> Tensor:
        """y = R + gamma sum_a pi(a) (Q^(s', a) + bonus(a)); float32[n]."""
        q = next_state.outputs[..., 0] if next_state.bonus is None else next_state.outputs[..., 0] + next_state.bonus
        return bellman_target(next_state.reward, next_state.discount, (q * next_state.policy).sum(1))

    def loss(self, taken: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Huber's, of width 1; the priority is |delta| (Schaul et al. 2016, section 3.3)."""
        return clipped_error(taken[:, 0], target)[0], (taken[:, 0] - target).abs()

    def loss_and_gradient(
        self, outputs: Tensor, action_one_hot: Tensor, target: Tensor, fractions: Tensor | None
    ) -> LossOutput:
        """The same as `ValueMethod.loss_and_gradient`, with the gradient written out."""
        taken = (outputs[..., 0] * action_one_hot).sum(1)
        loss, gradient = clipped_error(taken, target)
        error = (taken - target).abs() if self.algorithm.prioritized else loss
        return LossOutput(loss, error, (gradient[:, None] * action_one_hot)[:, :, None])
