"""Interface of an on-policy method: the steps of a round, the targets that follow from them, and the loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.interfaces import UpdateOutput
from learner.losses.method import Method
from learner.networks.frame_blocks import images_in
from learner.networks.model import ExtraInputs, Model, Recurrence

_NONE = np.empty(0, np.int64)


class Rollout(NamedTuple):
    """The steps of a round: T ticks of N envs, on the CPU."""

    reward: NDArray[np.float32]
    """[T, N]: clipped to their signs, if the run clips rewards."""
    terminal: NDArray[np.bool_]
    """[T, N]: nothing after the tick counts: a terminal state, or a lost life that ends the return."""
    ended: NDArray[np.bool_]
    """[T, N]: `terminal`, or a truncated episode."""
    valid: NDArray[np.bool_]
    """[T, N]: an action was taken. False at the true last frame of an episode, which follows an end."""
    action: NDArray[np.int64]
    """[T, N]."""
    log_prob: NDArray[np.float32]
    """[T, N]: logarithm of the probability with which the action was sampled; 0 if the method has no `log_prob`."""
    outputs: NDArray[np.float32]
    """[T + 1, N, outputs] of the network at the beginning of the updates; the last tick opens the next round."""
    discount: float
    target_outputs: NDArray[np.float32] = _NONE.astype(np.float32)
    """[T + 1, N, outputs] of the target network; empty if the method has none."""
    next_action: NDArray[np.int64] = _NONE
    """[N]: action of the epsilon-greedy policy at the last tick; empty with other policies."""


class StepTargets(NamedTuple):
    """Numbers of the steps of a round that the loss needs, [T, N] each."""

    advantage: NDArray[np.float32]
    """Estimate of the return of the action taken, less the expected one."""
    returns: NDArray[np.float32]
    """Target of the value of the state, or of the action taken."""
    weight: NDArray[np.float32]
    """Weight of the step in the mean loss; 0 where no action was taken."""
    old_value: NDArray[np.float32]
    """Value of the state, or of the action taken, at the beginning of the updates."""


class StepBatch(NamedTuple):
    """The steps of one update, n in all, in buffers that stay at their addresses."""

    blocks: Tensor
    """uint8[n, g, g, k * 16]: the k planes of one stack, g blocks along a side of a frame."""
    action_one_hot: Tensor
    """float32[n, actions]."""
    log_prob: Tensor
    """float32[n], of the policy that acted."""
    advantage: Tensor
    """float32[n]; this field and those below: as in `StepTargets`."""
    returns: Tensor
    """float32[n]."""
    weight: Tensor
    """float32[n]."""
    old_value: Tensor
    """float32[n]."""
    recurrence: Recurrence | None = None
    """Inputs of a recurrent network, for which the steps are whole sequences, one after the other; else None."""

    @property
    def extra_inputs(self) -> ExtraInputs:
        """The state of a recurrent network; other networks read frames alone."""
        return ExtraInputs(recurrence=self.recurrence)

    @property
    def columns(self) -> dict[str, Tensor]:
        """The fields with a row for each step, by name."""
        return {name: getattr(self, name) for name in ("blocks", "action_one_hot", *STEP_NUMBERS)}

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Planes uint8[n, k, size, size], actions int64[n], the targets, and the state of a recurrent network."""
        tensors = {name: getattr(self, name) for name in STEP_NUMBERS} | (
            {} if self.recurrence is None else self.recurrence._asdict()
        )
        numbers = {name: tensor.numpy(force=True).copy() for name, tensor in tensors.items()}
        frames = images_in(self.blocks.cpu()).contiguous().numpy()
        return {"frames": frames, "action": self.action_one_hot.argmax(1).numpy(force=True), **numbers}


STEP_NUMBERS = ("log_prob", *StepTargets._fields)
"""Fields of a `StepBatch` with a number for each step."""


class OnPolicyMethod(Method):
    """A method that learns from the steps of the newest round. The method is itself the update rule.

    The outputs of an actor-critic are one logit of the policy for each action, then the value of the state. Those of a
    method with the head `q` are the values of the actions.
    """

    mean_gradient = True
    """True if `learn` gives the gradient of the mean loss, False for that of the sum."""

    can_sum_losses = False
    """True if `learn` follows `mean_gradient`; the gradient of others is multiplied by the sum of the weights."""

    def sum_losses(self) -> None:
        """Have `learn` give the gradient of the sum of the losses, if the method can."""
        if self.can_sum_losses:
            self.mean_gradient = False

    @property
    def networks(self) -> Mapping[str, Model]:
        """None beside the one that learns."""
        return {}

    def update_target(self) -> None:
        """Do nothing: there is no target network."""

    def values(self, outputs: Tensor) -> Tensor:
        """Logits of the policy, or values of the actions, float32[n, actions]."""
        return outputs[:, : self.network.actions, 0]

    @abstractmethod
    def targets(self, rollout: Rollout) -> StepTargets:
        """Targets of all steps of a round, with the values of the network at its beginning."""

    @abstractmethod
    def learn(self, outputs: Tensor, minibatch: StepBatch, *, costly_metrics: bool) -> UpdateOutput:
        """Gradient of the weighted mean loss by `outputs` float32[n, outputs, 1], and metrics."""
