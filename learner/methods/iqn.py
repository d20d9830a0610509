"""IQN: returns at quantiles that are sampled and given to the network (Dabney et al. 2018b).

The paper also samples the fractions whose mean chooses an action. Here these fractions are evenly spaced and the same
for every state. So the action depends on the state alone, and more fractions bring the mean nearer to the paper's.
"""

from __future__ import annotations

import torch

from learner.methods.qr_dqn import QRDQN
from shared.config.method_declaration import IQNSettings
from shared.config.sections import Algorithm
from shared.network_spec import Network


class IQN(QRDQN):
    """Outputs are returns at given quantiles."""

    def __init__(self, network: Network, algorithm: Algorithm, device: torch.device) -> None:
        super().__init__(network, algorithm, device)
        self.samples, self.policy_samples = self.settings_as(IQNSettings).iqn_samples, network.fractions
