"""Passes in shards: the sums of whole batches, and bits that do not depend on threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learner.engine.initialization import initial_parameters
from learner.engine.side_stream import SideStream
from learner.networks.model import ExtraInputs, Model
from learner.networks.models import make_model
from learner.networks.sharded import ShardedModel
from shared.network_spec import Network, parameters_of

CPU = torch.device("cpu")
ROWS = 10
PLAIN = Network("small", 4, "ppo", value_output=True)
NORMALIZED = Network("small", 4, "pqn", layer_norm=True, conv_norm=True)
NETWORKS = {"fused": PLAIN, "autograd": NORMALIZED}


def _passes(model: Model, calls: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Outputs, and the gradient in canonical layout, of `calls` equal passes over one random batch."""
    generator = torch.Generator().manual_seed(1)
    blocks = torch.randint(0, 256, (ROWS, 21, 21, 64), generator=generator, dtype=torch.uint8)
    gradient = torch.randn(ROWS, model.network.outputs, 1, generator=generator)
    model.pack(initial_parameters(model.network, 0), model.params)
    model.sync_copy()
    vector = torch.full_like(model.params_bf16, 7.0)
    model.gradient_into(vector)
    with torch.inference_mode():
        for _ in range(calls):
            saved = model.forward(blocks, 0, ExtraInputs(), learns=True)
            model.backward(saved, gradient, SideStream())
    canonical = np.zeros(parameters_of(model.network).count, np.float32)
    model.unpack(vector.float(), canonical)
    return saved.outputs.detach().numpy(), canonical


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("shards", [2, 3])
def test_shards_give_the_outputs_and_the_gradient_of_the_batch(network: Network, shards: int) -> None:
    outputs, gradient = _passes(ShardedModel(make_model(network, CPU, "fp32"), shards, 2), calls=2)
    wanted_outputs, wanted_gradient = _passes(make_model(network, CPU, "fp32"))
    assert np.abs(wanted_gradient).max() > 1.0
    np.testing.assert_allclose(outputs, wanted_outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_number_of_threads_changes_no_bit(network: Network, precision: str) -> None:
    alone, parallel = (_passes(ShardedModel(make_model(network, CPU, precision), 4, threads)) for threads in (1, 3))
    for one, other in zip(alone, parallel, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_pass_that_fails_in_a_thread_fails_in_the_caller() -> None:
    model = ShardedModel(make_model(PLAIN, CPU, "fp32"), 2, 2)
    with pytest.raises(RuntimeError, match="channels"), torch.inference_mode():
        model.forward(torch.zeros(ROWS, 21, 21, 48, dtype=torch.uint8), 0, ExtraInputs())
