"""Returns over several steps against a slow, obvious reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from learner.replay.returns import End, n_step

GAMMA = 0.99


def _slow(reward: np.ndarray, ends: np.ndarray, discount: float) -> tuple[np.float32, np.float32, int]:
    """The return of one transition: rewards float32[k], ends int[k]."""
    total, gamma = 0.0, 1.0
    for i, (r, end) in enumerate(zip(reward.tolist(), ends.tolist(), strict=True)):
        total += gamma * r
        gamma *= discount
        if end == 1:
            return np.float32(total), np.float32(0.0), i + 1
        if end == 2:
            return np.float32(total), np.float32(gamma), i + 1
    return np.float32(total), np.float32(gamma), len(reward)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 20])
def test_every_return_is_the_slow_one_bit_for_bit(k: int) -> None:
    generator = np.random.default_rng(k)
    reward = generator.normal(size=(500, k)).astype(np.float32)
    ends = generator.choice([0, 1, 2], p=[0.8, 0.1, 0.1], size=(500, k)).astype(np.uint8)
    returns = n_step(reward, ends, GAMMA)
    expected = [_slow(*row, GAMMA) for row in zip(reward, ends, strict=True)]
    assert (returns.value.dtype, returns.discount.dtype, returns.length.dtype) == (np.float32, np.float32, np.int64)
    assert list(zip(*(part.tolist() for part in returns), strict=True)) == [tuple(map(float, row)) for row in expected]


def test_one_step_is_the_reward_and_the_discount_themselves() -> None:
    returns = n_step(np.array([[0.1], [-1.0], [0.3]], np.float32), np.array([[0], [1], [2]]), GAMMA)
    assert returns.value.tolist() == np.array([0.1, -1.0, 0.3], np.float32).tolist()
    assert returns.discount.tolist() == [np.float32(GAMMA), 0.0, np.float32(GAMMA)]
    assert returns.length.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("ends", "value", "discount", "length"),
    [
        ([End.NONE, End.NONE, End.NONE], 1.75, 0.125, 3),
        ([End.TERMINAL, End.NONE, End.NONE], 1.0, 0.0, 1),
        ([End.NONE, End.TERMINAL, End.NONE], 1.5, 0.0, 2),
        ([End.NONE, End.NONE, End.TERMINAL], 1.75, 0.0, 3),
        ([End.TRUNCATED, End.NONE, End.NONE], 1.0, 0.5, 1),
        ([End.NONE, End.TRUNCATED, End.NONE], 1.5, 0.25, 2),
        ([End.NONE, End.NONE, End.TRUNCATED], 1.75, 0.125, 3),
        ([End.TERMINAL, End.TRUNCATED, End.NONE], 1.0, 0.0, 1),
        ([End.TRUNCATED, End.TERMINAL, End.TERMINAL], 1.0, 0.5, 1),
    ],
)
def test_only_the_first_end_counts(ends: list[End], value: float, discount: float, length: int) -> None:
    returns = n_step(np.ones((1, 3), np.float32), np.array([ends]), 0.5)
    assert [part.item() for part in returns] == [value, discount, length]


def test_rewards_behind_an_end_are_ignored() -> None:
    reward = np.array([[1.0, np.nan, np.inf], [1.0, 2.0, np.nan]], np.float32)
    returns = n_step(reward, np.array([[2, 0, 0], [0, 1, 1]]), 0.5)
    assert returns.value.tolist() == [1.0, 2.0]
    assert returns.discount.tolist() == [0.5, 0.0]


def test_the_arguments_stay_as_they_are() -> None:
    reward, ends = np.ones((4, 3)), np.full((4, 3), End.NONE)
    n_step(reward, ends, GAMMA)
    assert (reward == 1.0).all()
    assert (ends == End.NONE).all()
