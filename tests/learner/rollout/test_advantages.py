"""Advantages by recursion against their definition: weighted sums of k-step returns over each piece of an episode."""

from __future__ import annotations

import numpy as np
import pytest

from learner.rollout.advantages import generalized_advantages

DISCOUNT = 0.99
TICKS, ENVS = 40, 50


def _round(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Ends of every kind at random ticks; the tick after an end of an episode is no state to act from."""
    terminal, ended = np.zeros((2, TICKS, ENVS), bool)
    valid = np.ones((TICKS, ENVS), bool)
    valid[0] = random.random(ENVS) > 0.3  # a round may begin with the true last frame of an episode
    for env in range(ENVS):
        for t in range(TICKS):
            kind = random.random()
            if not valid[t, env]:
                continue
            ends_episode, life_lost = kind < 0.14, 0.14 <= kind < 0.2
            terminal[t, env] = kind < 0.08 or life_lost
            ended[t, env] = ends_episode or life_lost
            if ends_episode and t + 1 < TICKS:
                valid[t + 1, env] = False
    return {"terminal": terminal, "ended": ended, "valid": valid}


def _by_definition(
    reward: np.ndarray, values: np.ndarray, ends: dict[str, np.ndarray], env: int, trace: float
) -> dict[int, float]:
    """Advantage by tick: the mixture of k-step returns up to the last step of the piece, less the value."""
    terminal, ended, valid = (ends[name][:, env] for name in ("terminal", "ended", "valid"))
    found = {}
    for s in np.flatnonzero(valid).tolist():
        last = s
        while last < TICKS - 1 and not ended[last]:
            last += 1
        length, total, returns = last - s + 1, 0.0, []
        for k in range(1, length + 1):
            total += DISCOUNT ** (k - 1) * reward[s + k - 1, env]
            bootstrap = 0.0 if k == length and terminal[last] else values[s + k, env]
            returns.append(total + DISCOUNT**k * bootstrap)
        weights = [(1 - trace) * trace ** (k - 1) for k in range(1, length)] + [trace ** (length - 1)]
        found[s] = float(np.dot(weights, returns) - values[s, env])
    return found


@pytest.mark.parametrize("trace", [0.0, 0.95, 1.0])
def test_advantages_are_those_of_the_definition(trace: float) -> None:
    random = np.random.default_rng(0)
    ends = _round(random)
    reward = random.choice([-1.0, 0.0, 1.0], (TICKS, ENVS)) * ends["valid"]
    values = random.normal(size=(TICKS + 1, ENVS))
    found = generalized_advantages(reward, values, **ends, discount=DISCOUNT, trace=trace)
    for env in range(ENVS):
        expected = _by_definition(reward, values, ends, env, trace)
        for tick in range(TICKS):
            assert found[tick, env] == pytest.approx(expected.get(tick, 0.0), rel=1e-12, abs=1e-12)


def test_a_truncated_episode_is_bootstrapped_by_its_last_frame_and_a_terminal_one_is_not() -> None:
    ends = {"terminal": np.array([[True, False]]), "ended": np.array([[True, True]]), "valid": np.ones((1, 2), bool)}
    values = np.array([[0.5, 0.5], [10.0, 10.0]])
    found = generalized_advantages(np.array([[1.0, 1.0]]), values, **ends, discount=0.5, trace=1.0)
    assert found.tolist() == [[0.5, 5.5]]
