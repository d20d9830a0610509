"""Fresh parameters: orthogonal ones with the gain of each layer, and those of PyTorch's layers."""

import math

import numpy as np
import pytest

from learner.networks.modules import initial_parameters
from shared.config.sections import Initial
from shared.network_parameters import parameters_of
from shared.network_spec import Network

A2C = Network("small", 4, "a2c", value_output=True)
NETWORKS = {
    "a2c": A2C,
    "a3c": Network("a3c", 18, "a2c", value_output=True, layer_norm=True, conv_norm=True),
    "dqn": Network("small", 6),
    "many-outputs": Network("small", 6, "c51", 51, -1.0, 1.0, dueling=True, noisy=0.5),
    "recurrent": Network("small", 4, "a2c", value_output=True, recurrent=64),
    "residual": Network("impala", 4, "iqn", spectral_norm=True, layer_norm=True, fractions=8),
}


def _drawn(network: Network, seed: int = 1, initial: Initial = "orthogonal") -> dict[str, np.ndarray]:
    return parameters_of(network).split(initial_parameters(network, seed, initial))


def _gains(network: Network, name: str, rows: int) -> np.ndarray:
    if name == "heads.weight":
        return np.array([0.01] * network.actions + [1.0])
    is_one = name in ("value.weight", "advantage.weight") or name.startswith("lstm.")
    return np.full(rows, 1.0 if is_one else math.sqrt(2))


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_orthogonal_and_biases_zero(name: str) -> None:
    network = NETWORKS[name]
    for part, weight in _drawn(network).items():
        if part.endswith("bias") or part.startswith("lstm.bias"):
            assert not weight.any(), part
        elif "_norm." in part:
            assert (weight == 1).all(), part
        elif part.endswith(".weight") or part.startswith("lstm.weight"):
            matrix = weight.reshape(len(weight), -1).astype(np.float64)
            gains = _gains(network, part, len(matrix))
            assert len(set(gains)) == 1 + (part == "heads.weight")
            for gain in set(gains):  # the rows of policy and value are orthogonal each for themselves
                rows = matrix[gains == gain]
                products = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows  # of columns where fewer
                np.testing.assert_allclose(products, gain**2 * np.eye(len(products)), atol=1e-6, err_msg=part)


@pytest.mark.parametrize("initial", ["orthogonal", "torch"])
def test_parameters_are_a_function_of_seed_and_name(initial: Initial) -> None:
    first, again, other = (_drawn(A2C, seed, initial) for seed in (1, 1, 2))
    with_norms = _drawn(Network("small", 4, "a2c", value_output=True, layer_norm=True, conv_norm=True), 1, initial)
    for name, weight in first.items():
        np.testing.assert_array_equal(weight, again[name])
        assert initial == "torch" or np.array_equal(weight, with_norms[name])
        assert (initial == "orthogonal" and name.endswith("bias")) or not np.array_equal(weight, other[name])
    square = [first["conv1.weight"].reshape(16, -1)[:, :16], first["conv2.weight"].reshape(16, -1)[:, :16]]
    assert not np.allclose(*square)


@pytest.mark.parametrize(("network", "usual"), [("a2c", "orthogonal"), ("dqn", "torch"), ("many-outputs", "torch")])
def test_actor_critics_begin_orthogonal_unless_told_otherwise(network: str, usual: Initial) -> None:
    drawn = {initial: initial_parameters(NETWORKS[network], 3, initial) for initial in ("auto", "torch", "orthogonal")}
    other: Initial = "torch" if usual == "orthogonal" else "orthogonal"
    np.testing.assert_array_equal(drawn["auto"], drawn[usual])
    assert not np.array_equal(drawn["auto"], drawn[other])


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_layers_begin_as_those_of_pytorch(network: Network) -> None:
    """Noisy ones have sigma_0 / sqrt(fan-in) (Fortunato et al. 2018, section 3.2, factorized)."""
    drawn = _drawn(network, 3, "torch")
    for name in (name for name in drawn if name.endswith(".weight")):
        weight, bias = drawn[name], drawn[name.replace("weight", "bias")]
        if "_norm." in name:
            assert (weight == 1).all()
            assert not bias.any()
            continue
        bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
        for part in (weight, bias):
            assert np.abs(part).max() <= bound, name
            assert np.abs(part).max() > 0.9 * bound or part.size < 50, name
        assert np.abs(weight.mean()) < 0.1 * bound
        for kind in ("weight_sigma", "bias_sigma") if f"{name}_sigma" in drawn else ():
            np.testing.assert_allclose(drawn[name.replace("weight", kind)], 0.5 * bound, rtol=1e-6)
    assert all(0.11 < np.abs(drawn[name]).max() <= 0.125 for name in drawn if name.startswith("lstm."))


def test_noise_and_singular_vectors_begin_alike() -> None:
    for name in ("many-outputs", "residual"):
        drawn, usual = _drawn(NETWORKS[name]), _drawn(NETWORKS[name], initial="torch")
        for part, values in drawn.items():
            if part.endswith("_sigma"):
                np.testing.assert_array_equal(values, usual[part])
            elif part.endswith(".u"):
                assert np.linalg.norm(values) == pytest.approx(1.0, abs=1e-6)
                weight = usual[part.replace(".u", ".weight")].reshape(len(values), -1)
                assert np.linalg.norm(weight.T @ usual[part]) == pytest.approx(np.linalg.norm(weight, 2), rel=0.05)
        assert sum(part.endswith(".u") for part in drawn) == (12 if name == "residual" else 0)
