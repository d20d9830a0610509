"""The model of a network."""

from __future__ import annotations

import torch

from learner.networks.fused import FusedModel
from learner.networks.module_model import ModuleModel
from learner.networks.packed_model import PackedModel
from learner.team.team import Team
from shared.network_spec import Network


def make_model(network: Network, device: torch.device, precision: str, team: Team | None = None) -> PackedModel:
    """The model of a network, with parameters that are still to be set, in the memory of a team if there is one."""
    kind = FusedModel if network.plain else ModuleModel
    return kind(network, device, precision, team)
