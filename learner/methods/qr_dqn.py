"""QR-DQN: returns at evenly spaced quantiles (Dabney et al. 2018a)."""

from __future__ import annotations

import torch
from torch import Tensor

from learner.losses.distributional_loss import midpoints, quantile_huber
from learner.losses.method import Method, Successor
from shared.config.settings import Extend
from shared.network_spec import Network


class Quantiles(Method):
    """Outputs are returns at quantiles."""

    def __init__(self, network: Network, extend: Extend, device: torch.device) -> None:
        super().__init__(network, extend, device)
        self._midpoints = midpoints(network.atoms, device=device)

    def values(self, outputs: Tensor) -> Tensor:
        """The mean over the quantiles."""
        return outputs.mean(-1)

    def target(self, successor: Successor) -> Tensor:
        """R + gamma sum_a pi(a) (theta_j(s', a) + bonus(a)); float32[n, atoms]."""
        theta = successor.outputs if successor.bonus is None else successor.outputs + successor.bonus[:, :, None]
        following = (theta * successor.policy[:, :, None]).sum(1)
        return successor.reward[:, None] + successor.discount[:, None] * following

    def loss(self, chosen: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """The quantile Huber loss. The priority is the size of the errors, summed over quantiles, averaged over those
        of the target, as in the program of BTR's authors (shared/config/presets.py)."""
        loss = quantile_huber(chosen, self._midpoints if fractions is None else fractions, target)
        if not self.extend.prioritised:
            return loss, loss
        return loss, (target[:, None] - chosen.detach()[:, :, None]).abs().sum(1).mean(1)


METHOD = Quantiles
