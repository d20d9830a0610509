"""The class of the plug-in `tests.support.reinforce`: another loss than A2C's, by autograd."""

import torch
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.rollout.actor_critic import step_targets
from learner.rollout.advantages import generalized_advantages
from learner.rollout.on_policy_method import OnPolicyMethod, Rollout, StepBatch, StepTargets


class Reinforce(OnPolicyMethod):
    """loss = -(G - V) log pi(a|s) + |G - V|, with returns G up to the end of the round."""

    def targets(self, rollout: Rollout) -> StepTargets:
        """Returns, and their differences to the value."""
        values = rollout.outputs[:, :, -1]
        advantage = generalized_advantages(rollout, values, trace=1.0)
        return step_targets(rollout, advantage, advantage + values[:-1])

    def learn(self, outputs: Tensor, minibatch: StepBatch, *, costly_metrics: bool) -> UpdateOutput:
        """The gradient by PyTorch."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf = outputs.clone().requires_grad_()
            log_prob = (self.values(leaf).log_softmax(1) * minibatch.action_one_hot.clone()).sum(1)
            error = minibatch.returns.clone() - leaf[:, -1, 0]
            loss = error.abs() - minibatch.advantage.clone() * log_prob
            share = minibatch.weight / minibatch.weight.sum().clamp(min=1.0)
            (gradient,) = torch.autograd.grad((loss * share).sum(), leaf)
        return UpdateOutput(gradient, {"loss": loss.detach(), "baseline": outputs[:, -1, 0]})
