"""C51: probabilities of fixed returns, the atoms (Bellemare et al. 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.distribution import categorical_projection, cross_entropy, mean_of
from learner.loss import select
from learner.method import Future, Method
from shared.config import Extend
from shared.parameters import Network


class C51(Method):
    """Outputs are the logits of the atoms."""

    mixes = rescales = False

    def __init__(self, network: Network, extend: Extend, device: torch.device) -> None:
        super().__init__(network, extend, device)
        self._support = torch.linspace(network.v_min, network.v_max, network.atoms, device=device)

    def values(self, outputs: Tensor) -> Tensor:
        """Sum of the atoms, each times its probability."""
        return mean_of(outputs.softmax(-1), self._support)

    def target(self, future: Future) -> Tensor:
        """The distribution of R + gamma z, projected on the atoms; float32[n, atoms]."""
        following = select(future.outputs.softmax(-1), future.policy)
        return categorical_projection(following, future.reward, future.discount, self._support)

    def loss(self, chosen: Tensor, target: Tensor, fractions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cross-entropy; the priority is the Kullback-Leibler divergence (Hessel et al. 2018)."""
        loss = cross_entropy(F.log_softmax(chosen, 1), target)
        divergence = loss.detach() + torch.xlogy(target, target).sum(1)
        return loss, divergence.clamp(min=0.0)


METHOD = C51
