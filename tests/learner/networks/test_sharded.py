"""Passes in shards: the sums of whole batches, and bits that do not depend on threads and ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learner.networks.make_model import make_model
from learner.networks.model import ExtraInputs, Model
from learner.networks.modules import initial_parameters
from learner.networks.sharded import Ranks, ShardedModel
from shared.network_spec import Network
from tests.learner.networks.test_modules import learn
from tests.support.thread_ranks import in_ranks

CPU = torch.device("cpu")
ROWS = 10
NOTHING = ExtraInputs()
PLAIN = Network("small", 4, "ppo", value_output=True)
NORMALIZED = Network("small", 4, "pqn", layer_norm=True, conv_norm=True)
SHARED_ROWS = 8
"""A multiple of the four shards that ranks share."""
NETWORKS = {"fused": PLAIN, "autograd": NORMALIZED}


def _passes(
    model: Model, calls: int = 1, rows: int = ROWS, extra_inputs: ExtraInputs = NOTHING
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Outputs, and the gradient in canonical layout, of `calls` equal passes over one random batch."""
    generator = torch.Generator().manual_seed(1)
    blocks = torch.randint(0, 256, (rows, 21, 21, 64), generator=generator, dtype=torch.uint8)
    atoms = 1 if extra_inputs.fractions is None else extra_inputs.fractions.shape[1]
    gradient = torch.randn(rows, model.network.outputs, atoms, generator=generator)
    model.pack(initial_parameters(model.network, 0), model.params)
    model.sync_copy()
    saved, canonical = learn(model, blocks, extra_inputs, gradient, calls)
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


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_number_of_ranks_changes_no_bit(network: Network, precision: str) -> None:
    _require_same_in_ranks(network, precision, NOTHING)


def test_each_shard_has_its_fractions_and_the_noise_of_the_update() -> None:
    network = Network("small", 4, "iqn", dueling=True, noisy=True, fractions=8)
    generator = torch.Generator().manual_seed(2)
    fractions = torch.rand(SHARED_ROWS, 3, generator=generator)
    noise = torch.randn(1, make_model(network, CPU, "fp32").noise, generator=generator)
    whole = _passes(make_model(network, CPU, "fp32"), 1, SHARED_ROWS, ExtraInputs(fractions, noise))
    shared = _require_same_in_ranks(network, "fp32", ExtraInputs(fractions, noise))
    for one, other in zip(whole, shared, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="noise of one update, not of 2"):
        _passes(ShardedModel(make_model(network, CPU, "fp32"), 4, 1), 1, 8, ExtraInputs(fractions, noise.repeat(2, 1)))


def _require_same_in_ranks(
    network: Network, precision: str, extra_inputs: ExtraInputs
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Require that every one of 1, 2 and 4 ranks has the same bits, and return them."""

    def work(ranks: Ranks | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return _passes(ShardedModel(make_model(network, CPU, precision), 4, 1, ranks), 2, SHARED_ROWS, extra_inputs)

    found = [result for size in (1, 2, 4) for result in in_ranks(size, work)]
    for result in found[1:]:
        for one, other in zip(found[0], result, strict=True):
            np.testing.assert_array_equal(one, other)
    return found[0]


def test_ranks_that_cannot_share_the_shards_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ranks cannot share 3 shards evenly"):
        in_ranks(2, lambda ranks: ShardedModel(make_model(PLAIN, CPU, "fp32"), 3, 1, ranks))


def test_a_pass_that_fails_in_a_thread_fails_in_the_caller() -> None:
    model = ShardedModel(make_model(PLAIN, CPU, "fp32"), 2, 2)
    with pytest.raises(RuntimeError, match="channels"), torch.inference_mode():
        model.forward(torch.zeros(ROWS, 21, 21, 48, dtype=torch.uint8), 0, ExtraInputs())
