"""Targets by recursion against their definitions: sums over the steps of each piece of an episode, in float64."""

from collections.abc import Iterator

import numpy as np
import pytest

from learner.rollout.advantages import generalized_advantages, v_trace
from learner.rollout.on_policy_method import Rollout
from shared.config.method_declaration import VTraceSettings
from tests.support.random_rollout import DISCOUNT, random_rollout


def _drawn(seed: int) -> tuple[np.random.Generator, Rollout, np.ndarray]:
    """A generator, and a round with values of all its ticks that it drew."""
    random = np.random.default_rng(seed)
    rollout = random_rollout(random)
    return random, rollout, random.normal(size=(len(rollout.reward) + 1, rollout.reward.shape[1]))


def _pieces(rollout: Rollout) -> Iterator[tuple[int, int, int, bool]]:
    """(env, tick, last tick of its piece, True if nothing is bootstrapped there) of every step."""
    ticks, envs = rollout.reward.shape
    for env in range(envs):
        for first in np.flatnonzero(rollout.valid[:, env]).tolist():
            last = first
            while last < ticks - 1 and not rollout.ended[last, env]:
                last += 1
            yield env, first, last, bool(rollout.terminal[last, env])


def _mixture_of_returns(
    rollout: Rollout, values: np.ndarray, env: int, first: int, last: int, *, terminal: bool, trace: float
) -> float:
    """The k-step returns of a tick, weighted by (1 - lambda) lambda^(k - 1); the longest has the rest of the weight."""
    length, total, returns = last - first + 1, 0.0, []
    for k in range(1, length + 1):
        total += DISCOUNT ** (k - 1) * float(rollout.reward[first + k - 1, env])
        bootstrap = 0.0 if k == length and terminal else values[first + k, env]
        returns.append(total + DISCOUNT**k * bootstrap)
    weights = [(1 - trace) * trace ** (k - 1) for k in range(1, length)] + [trace ** (length - 1)]
    return float(np.dot(weights, returns))


@pytest.mark.parametrize("trace", [0.0, 0.65, 0.95, 1.0])
def test_advantages_are_mixtures_of_returns_less_the_value(trace: float) -> None:
    _, rollout, values = _drawn(0)
    expected = np.zeros_like(values[:-1])
    for env, first, last, terminal in _pieces(rollout):
        mixture = _mixture_of_returns(rollout, values, env, first, last, terminal=terminal, trace=trace)
        expected[first, env] = mixture - values[first, env]
    np.testing.assert_allclose(generalized_advantages(rollout, values, trace), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("trace", "rho_max", "c_max"), [(1.0, 1.0, 1.0), (0.9, 1.5, 0.8), (0.8, 0.5, 2.0)])
def test_v_trace_targets_are_the_sums_of_the_paper(trace: float, rho_max: float, c_max: float) -> None:
    random, rollout, values = _drawn(1)
    ratio = np.exp(random.normal(size=rollout.reward.shape))
    rho, c = np.minimum(rho_max, ratio), trace * np.minimum(c_max, ratio)
    reward, live = rollout.reward.astype(np.float64), ~rollout.terminal
    returns = values.copy()
    for env, first, last, _ in _pieces(rollout):
        for t in range(first, last + 1):
            error = reward[t, env] + DISCOUNT * live[t, env] * values[t + 1, env] - values[t, env]
            kept = DISCOUNT ** (t - first) * np.prod(c[first:t, env])
            returns[first, env] += kept * rho[t, env] * error
    advantage = rho * (reward + DISCOUNT * live * returns[1:] - values[:-1]) * rollout.valid
    found = v_trace(rollout, values, ratio, VTraceSettings(trace=trace, rho_max=rho_max, c_max=c_max))
    np.testing.assert_allclose(found[0][rollout.valid], returns[:-1][rollout.valid], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1], advantage, rtol=1e-12, atol=1e-12)
