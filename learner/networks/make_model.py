"""The model of a network."""

from __future__ import annotations

import torch

from learner.networks.fused import FusedModel
from learner.networks.module_model import ModuleModel
from learner.networks.packed_model import PackedModel
from shared.network_spec import Network


def make_model(network: Network, device: torch.device, precision: str) -> PackedModel:
    """The model of a network, with parameters that are still to be set."""
    return FusedModel(network, device, precision) if network.plain else ModuleModel(network, device, precision)
