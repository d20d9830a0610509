"""C51: probabilities of fixed returns, the atoms (Bellemare et al. 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.losses.distributional_loss import categorical_projection, cross_entropy, expected_value
from learner.losses.method import NextState, ValueMethod
from learner.losses.scalar_loss import select
from shared.config.method_declaration import C51Settings
from shared.config.sections import Algorithm
from shared.network_spec import Network

MOST_AT_ONCE = 1 << 24
"""Numbers in the largest intermediate of a projection; 256 transitions of 51 atoms take a twenty-fifth of it."""


class C51(ValueMethod):
    """Outputs are the logits of the atoms."""

    supports_soft_policy = supports_value_rescaling = False

    def __init__(self, network: Network, algorithm: Algorithm, device: torch.device) -> None:
        super().__init__(network, algorithm, device)
        self._support = torch.linspace(network.v_min, network.v_max, network.atoms, device=device)
        self._priority = self.settings_as(C51Settings).c51_priority

    def values(self, outputs: Tensor) -> Tensor:
        """Sum of the atoms, each times its probability."""
        return expected_value(outputs.softmax(-1), self._support)

    def target(self, next_state: NextState) -> Tensor:
        """The distribution of R + gamma z, projected on the atoms; float32[n, atoms]."""
        following = select(next_state.outputs.softmax(-1), next_state.policy)
        # By so many rows at once that the projection, Z^2 numbers a row, needs little memory.
        rows = max(1, MOST_AT_ONCE // len(self._support) ** 2)
        parts = zip(following.split(rows), next_state.reward.split(rows), next_state.discount.split(rows), strict=True)
        projected = [categorical_projection(*part, self._support) for part in parts]
        return projected[0] if len(projected) == 1 else torch.cat(projected)

    def loss(self, taken: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cross-entropy, which is also the priority unless that is the Kullback-Leibler divergence."""
        loss = cross_entropy(F.log_softmax(taken, 1), target)
        if self._priority == "cross-entropy":
            return loss, loss.detach()
        divergence = loss.detach() + torch.xlogy(target, target).sum(1)
        return loss, divergence.clamp(min=0.0)
