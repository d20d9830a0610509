"""Sampled actions: their distribution, their probabilities, and that they are a function of seed, env and tick."""

import numpy as np
import pytest
import torch

from learner.networks.categorical import probabilities, sample

DRAWS, ACTIONS = 20_000, 5


def test_actions_are_distributed_as_the_softmax() -> None:
    """Chi-square of 20,000 draws with 4 degrees of freedom; above 18.5 with a probability of 0.001."""
    logits = np.tile(np.array([[0.3, -1.0, 2.0, 0.0, 0.7]], np.float32), (DRAWS, 1))
    actions, _ = sample(logits, 7, np.arange(DRAWS) % 16, np.arange(DRAWS) // 16)
    expected = DRAWS * probabilities(logits[:1])[0].astype(np.float64)
    counts = np.bincount(actions, minlength=ACTIONS)
    assert (((counts - expected) ** 2) / expected).sum() < 18.5


def test_log_probabilities_are_those_of_the_actions() -> None:
    logits = (np.random.default_rng(0).normal(size=(500, ACTIONS)) * 3).astype(np.float32)
    actions, log_prob = sample(logits, 1, np.arange(500), np.zeros(500, np.int64))
    expected = torch.log_softmax(torch.from_numpy(logits).double(), 1).numpy()[np.arange(500), actions]
    np.testing.assert_allclose(log_prob, expected, atol=1e-6)


def test_a_draw_depends_on_seed_env_and_tick_alone() -> None:
    logits = np.random.default_rng(1).normal(size=(64, ACTIONS)).astype(np.float32)
    envs, ticks = np.arange(64), np.full(64, 9)
    actions, log_prob = sample(logits, 3, envs, ticks)
    some = np.array([40, 2, 17])
    again, log_again = sample(logits[some], 3, envs[some], ticks[some])
    assert (again.tolist(), log_again.tolist()) == (actions[some].tolist(), log_prob[some].tolist())
    for seed, shift, later in ((4, 0, 0), (3, 1, 0), (3, 0, 1)):
        assert sample(logits, seed, envs + shift, ticks + later)[0].tolist() != actions.tolist()


@pytest.mark.parametrize("best", range(ACTIONS))
def test_extreme_logits_give_one_action(best: int) -> None:
    logits = np.full((100, ACTIONS), -1e4, np.float32)
    logits[:, best] = 1e4
    actions, log_prob = sample(logits, 5, np.arange(100), np.arange(100))
    assert (actions == best).all()
    assert (log_prob == 0).all()


def test_broken_logits_are_a_sentence() -> None:
    logits = np.zeros((3, ACTIONS), np.float32)
    logits[1, 2] = np.nan
    with pytest.raises(FloatingPointError, match="The policy has the logits"):
        sample(logits, 5, np.arange(3), np.arange(3))
