"""The model of a network."""

from __future__ import annotations

import torch

from learner.networks.autograd import AutogradModel
from learner.networks.fused import FusedModel
from learner.networks.model import ReplicableModel
from shared.network_spec import Network


def make_model(network: Network, device: torch.device, precision: str) -> ReplicableModel:
    """The model of a network, with parameters that are still to be set."""
    return FusedModel(network, device, precision) if network.plain else AutogradModel(network, device, precision)
