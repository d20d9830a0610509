"""Parameters that travel rounded have the network act as those that do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learner.networks.fused import FusedModel
from learner.networks.make_model import make_model
from ringside.cluster.parameters import ParameterCoding
from shared.memory.plan import Plan
from tests.support.remote_world import make_plan


def plan_of(**settings: object) -> Plan:
    """The plan with other settings."""
    plan = make_plan(0)
    return replace(plan, config=plan.config.with_settings(**settings))


def travelled(plan: Plan, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
    """The parameters at a node."""
    coding, out = ParameterCoding(plan), np.full_like(parameters, np.nan)
    coded = coding.encode(parameters)
    assert coded.nbytes == coding.bytes
    coding.decode(coded, out)
    return out


def drawn(plan: Plan) -> NDArray[np.float32]:
    """Parameters, among them zeros, halves between two bfloat16, and very small and large ones."""
    parameters = np.random.default_rng(1).normal(0.0, 0.02, plan.parameters.count).astype(np.float32)
    odd = np.array([0.0, -0.0, 1.00390625, 1.01171875, -1.00390625, 1e-40, 3e38, -3.3895314e38], np.float32)
    parameters[: -len(odd) : 97] = np.resize(odd, len(parameters[: -len(odd) : 97]))
    return parameters


@pytest.mark.parametrize("network", ["small", "nature"])
@pytest.mark.parametrize("method", ["dqn", "c51"])
def test_a_plain_network_in_bf16_acts_alike(network: str, method: str) -> None:
    plan = plan_of(network=network, method=method, precision="bf16")
    parameters = drawn(plan)
    cpu = torch.device("cpu")
    near, far = (make_model(plan.network, cpu, "bf16") for _ in range(2))
    assert isinstance(near, FusedModel)
    assert isinstance(far, FusedModel)
    near.take(parameters)
    far.take(travelled(plan, parameters))
    layers = [(*ours, *theirs) for ours, theirs in zip(near.layers.convolutions, far.layers.convolutions, strict=True)]
    layers += [(*near.layers.hidden, *far.layers.hidden), (*near.layers.output, *far.layers.output)]
    for weight, bias, other_weight, other_bias in layers:
        assert torch.equal(weight, other_weight)
        assert torch.equal(bias, other_bias)
    assert ParameterCoding(plan).bytes < 0.6 * parameters.nbytes


@pytest.mark.parametrize(
    "settings",
    [{"precision": "fp32"}, {"precision": "bf16", "acting_precision": "fp32"}, {"precision": "bf16", "dueling": True}],
)
def test_all_other_parameters_travel_as_they_are(settings: dict[str, object]) -> None:
    plan = plan_of(**settings)
    parameters = drawn(plan)
    assert np.array_equal(travelled(plan, parameters).view(np.uint32), parameters.view(np.uint32))
    assert ParameterCoding(plan).bytes == parameters.nbytes
