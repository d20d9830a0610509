"""The noise that noisy networks act with: a function of seed, tick and env, and another for every one of them."""

import numpy as np
import torch

from learner.networks.acting_noise import acting_noise
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from shared.network_spec import Network
from tests.support.played_ring import patches

NETWORK = Network("small", actions=6, dueling=True, noisy=0.5)
ENVS = 16


def _drawn(seed: int, tick: int, envs: list[int]) -> np.ndarray:
    return acting_noise(seed, 2_855, tick, np.array(envs))


def test_the_envs_of_a_request_change_no_noise() -> None:
    together = _drawn(1, 7, [0, 3, 5])
    assert np.array_equal(together[[2, 0]], _drawn(1, 7, [5, 0]))
    for other in (_drawn(2, 7, [0]), _drawn(1, 8, [0]), _drawn(1, 7, [1])):
        assert not np.array_equal(together[0], other[0])


def test_envs_differ_and_every_one_has_normal_noise() -> None:
    numbers = np.concatenate([_drawn(3, tick, list(range(ENVS))) for tick in range(8)])  # [ticks * envs, k]
    correlations = np.corrcoef(numbers) - np.eye(len(numbers))
    assert np.abs(correlations).max() < 5 * np.sqrt(3 / numbers.shape[1])  # sizes are those of the tick: E[x^4] = 3
    for moments in (numbers.mean(1), numbers.std(1) - 1):
        assert np.abs(moments).max() < 5 / np.sqrt(numbers.shape[1])


def test_emulators_on_the_same_screen_do_not_all_act_alike() -> None:
    """With one noise for all they would, and play the same game as often as there are emulators."""
    policy = Policy(NETWORK, torch.device("cpu"), "fp32", ENVS, explore_seed=1)
    policy.load(initial_parameters(NETWORK, 1))
    frames, keep = patches(np.random.default_rng(0), 4), np.ones((ENVS, 4), bool)
    rows, envs = np.tile(np.arange(4), (ENVS, 1)), np.arange(ENVS)
    kinds = []
    for tick in range(20):
        q = policy.values_from_rows(frames, rows, keep, envs, (envs, np.full(ENVS, tick)))
        kinds.append(len(set(q.argmax(1).tolist())))
    assert np.mean(kinds) > 2
