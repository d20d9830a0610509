"""Returns over several steps against a slow, obvious reference, bit for bit."""

import numpy as np
import pytest

from learner.replay.returns import n_step

GAMMA = 0.99


def _slow(reward: np.ndarray, ends: np.ndarray, discount: float) -> tuple[np.float32, np.float32, int]:
    """The return of one transition: rewards float32[k], ends int[k]."""
    total, gamma = 0.0, 1.0
    for i, (r, end) in enumerate(zip(reward.tolist(), ends.tolist(), strict=True), start=1):
        total += gamma * r
        gamma *= discount
        if end:
            return np.float32(total), np.float32(gamma if end == 2 else 0.0), i
    return np.float32(total), np.float32(gamma), len(reward)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 20])
def test_every_return_is_the_slow_one_bit_for_bit(k: int) -> None:
    generator = np.random.default_rng(k)
    reward = generator.normal(size=(500, k)).astype(np.float32)
    ends = generator.choice([0, 1, 2], p=[0.8, 0.1, 0.1], size=(500, k)).astype(np.uint8)
    kept = reward.copy(), ends.copy()
    returns = n_step(reward, ends, GAMMA)
    np.testing.assert_equal((reward, ends), kept)
    expected = [_slow(*row, GAMMA) for row in zip(reward, ends, strict=True)]
    assert (returns.value.dtype, returns.discount.dtype, returns.length.dtype) == (np.float32, np.float32, np.int64)
    assert list(zip(*(part.tolist() for part in returns), strict=True)) == [tuple(map(float, row)) for row in expected]


def test_rewards_behind_an_end_are_ignored() -> None:
    reward = np.array([[1.0, np.nan, np.inf], [1.0, 2.0, np.nan]], np.float32)
    returns = n_step(reward, np.array([[2, 0, 0], [0, 1, 1]]), 0.5)
    assert (returns.value.tolist(), returns.discount.tolist()) == ([1.0, 2.0], [0.5, 0.0])
