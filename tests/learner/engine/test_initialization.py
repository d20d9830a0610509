"""Fresh parameters of actor-critics: orthogonal, each head with its gain."""

from __future__ import annotations

import math

import numpy as np

from learner.engine.initialization import POLICY_GAIN, initial_parameters
from shared.network_spec import Network, parameters_of

NETWORK = Network("small", 4, "a2c", value_output=True)


def test_weights_are_orthogonal_and_biases_zero() -> None:
    for name, weight in parameters_of(NETWORK).split(initial_parameters(NETWORK, 1)).items():
        matrix = weight.reshape(len(weight), -1).astype(np.float64)
        if name.endswith("bias"):
            assert not weight.any(), name
            continue
        gains = np.full(len(weight), math.sqrt(2))
        if name == "heads.weight":
            gains = np.array([POLICY_GAIN] * 4 + [1.0])
        if len(matrix) <= matrix.shape[1]:
            np.testing.assert_allclose(matrix @ matrix.T, np.diag(gains**2), atol=1e-6, err_msg=name)
        else:
            np.testing.assert_allclose(matrix.T @ matrix, 2 * np.eye(matrix.shape[1]), atol=1e-6, err_msg=name)


def test_parameters_are_a_function_of_the_seed() -> None:
    first, again, other = (initial_parameters(NETWORK, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
