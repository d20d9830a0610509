"""QR-DQN: returns at evenly spaced quantiles (Dabney et al. 2018a)."""

from __future__ import annotations

import torch
from torch import Tensor

from learner.losses.distributional_loss import midpoints, quantile_huber
from learner.losses.method import NextState, ValueMethod
from shared.config.sections import Algorithm
from shared.network_spec import Network


class QRDQN(ValueMethod):
    """Outputs are returns at quantiles."""

    def __init__(self, network: Network, algorithm: Algorithm, device: torch.device) -> None:
        super().__init__(network, algorithm, device)
        self._midpoints = midpoints(network.atoms, device=device)

    def values(self, outputs: Tensor) -> Tensor:
        """The mean over the quantiles."""
        return outputs.mean(-1)

    def target(self, next_state: NextState) -> Tensor:
        """R + gamma sum_a pi(a) (theta_j(s', a) + bonus(a)); float32[n, atoms]."""
        theta = next_state.outputs if next_state.bonus is None else next_state.outputs + next_state.bonus[:, :, None]
        following = (theta * next_state.policy[:, :, None]).sum(1)
        return next_state.reward[:, None] + next_state.discount[:, None] * following

    def loss(self, taken: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """The quantile Huber loss. The priority is the size of the errors, summed over quantiles, averaged over those
        of the target, as in the program of BTR's authors (shared/config/presets/replay_presets.py)."""
        loss = quantile_huber(taken, self._midpoints if fractions is None else fractions, target)
        if not self.algorithm.prioritized:
            return loss, loss
        return loss, (target[:, None] - taken.detach()[:, :, None]).abs().sum(1).mean(1)
