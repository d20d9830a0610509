"""Priorities: draws, weights and sums against slow references."""

from itertools import pairwise

import numpy as np
import pytest

from learner.replay.priorities import Priorities, largest_weight
from learner.replay.sum_tree import BITS, EPSILON, QUANTUM
from shared.config.run_schedule import MOST_PRIORITIES

MOST = 2**38
"""The largest weight of `MOST_PRIORITIES`, in quanta."""

ALMOST_ONE = float(np.nextafter(1.0, 0.0))


def _make(window_ticks: int, envs: int, alpha: float = 0.6) -> Priorities:
    return Priorities(window_ticks=window_ticks, envs=envs, alpha=alpha)


def _full(window_ticks: int, envs: int, alpha: float = 0.6) -> Priorities:
    """With all places samplable."""
    priorities = _make(window_ticks, envs, alpha)
    priorities.admit(0, np.ones((window_ticks, envs), bool))
    return priorities


def _state(priorities: Priorities) -> np.ndarray:
    out = np.zeros(priorities.state_size, np.float32)
    priorities.store(out)
    return out


def _uniform(random: np.random.Generator, count: int, batch: int) -> np.ndarray:
    """Random numbers, and some at the edges of their strata."""
    uniform = random.random((count, batch))
    uniform[random.random(uniform.shape) < 0.1] = 0.0
    uniform[random.random(uniform.shape) < 0.1] = ALMOST_ONE
    return uniform


def _set(priorities: Priorities, weights: np.ndarray) -> None:
    """Give the places these weights, whole numbers of quanta."""
    priorities.load((np.append(weights, max(weights.max(), 1)) * QUANTUM).astype(np.float32))


def check_valid(priorities: Priorities) -> None:
    """Raise `AssertionError` unless weights are in their range and every parent is the sum of its children."""
    levels, places = priorities._levels, priorities.places
    assert ((levels[0] >= 0) & (levels[0] <= priorities._maximum)).all(), "a weight is negative or above the maximum"
    assert not levels[0][places:].any(), "there is weight behind the last place"
    for children, parents in pairwise(levels):
        sums = children.reshape(-1, 1 << BITS).sum(1)
        assert np.array_equal(sums, parents[: len(sums)]), "a parent is not the sum of its children"
        assert not parents[len(sums) :].any(), "there is weight without a place"


class Reference:
    """Weights as floats by place, nothing summed beforehand."""

    def __init__(self, window_ticks: int, envs: int, alpha: float) -> None:
        self.weights = np.zeros(window_ticks * envs)
        self.maximum = 1.0
        self.window_ticks, self.envs, self.alpha = window_ticks, envs, alpha

    def admit(self, first_tick: int, samplable: np.ndarray) -> None:
        for tick, row in enumerate(samplable, start=first_tick):
            place = tick % self.window_ticks * self.envs
            self.weights[place : place + self.envs] = np.where(row, self.maximum, 0.0)

    def update(self, places: np.ndarray, errors: np.ndarray) -> None:
        for place, error in zip(places, errors, strict=True):
            exact = np.float32((float(error) + EPSILON) ** self.alpha)
            weight = min(max(round(float(exact) / QUANTUM), 1), largest_weight(len(self.weights))) * QUANTUM
            self.maximum = max(self.maximum, weight)
            if self.weights[place]:
                self.weights[place] = weight

    def sample(self, uniform: np.ndarray) -> list[int]:
        batch = uniform.shape[1]
        up_to = np.cumsum(self.weights)
        targets = (uniform + np.arange(batch)) * (1 / batch) * up_to[-1]
        most = up_to[-1] - QUANTUM
        return [int(np.searchsorted(up_to, min(target, most), side="right")) for target in targets.reshape(-1)]


SIZES = [(1, 1, 0.6), (7, 3, 0.6), (64, 8, 1.0), (300, 60, 0.5), (9, 4, 0.0)]


@pytest.mark.parametrize(("window_ticks", "envs", "alpha"), SIZES)
def test_does_what_the_reference_does(window_ticks: int, envs: int, alpha: float) -> None:
    """Random play: wrap-around, duplicates, what is not samplable, what is forgotten, and from a state again."""
    random = np.random.default_rng(5)
    reference, priorities = Reference(window_ticks, envs, alpha), _make(window_ticks, envs, alpha)
    tick, drawn = 0, 0
    for step in range(60):
        ticks = int(random.integers(1, max(2, window_ticks // 3)))
        samplable = random.random((ticks, envs)) < 0.8
        reference.admit(tick, samplable)
        priorities.admit(tick, samplable)
        tick += ticks
        if step % 3 == 0 and window_ticks > 3:
            oldest = max(0, tick - window_ticks)
            reference.admit(oldest, np.zeros((3, envs), bool))
            priorities.forget(oldest, 3)
        if step % 10 == 9:
            state = _state(priorities)
            priorities = _make(window_ticks, envs, alpha)
            priorities.load(state)
        assert priorities.empty == (not reference.weights.any())
        if priorities.empty:
            continue
        uniform = _uniform(random, 3, 16)
        expected = reference.sample(uniform)
        places, found = priorities.sample(uniform)
        assert places.tolist() == expected
        np.testing.assert_array_equal(found, np.float32(reference.weights[expected] / reference.weights.sum()))
        drawn += len(expected)
        some = random.integers(0, len(reference.weights), 20)  # duplicates, and places without weight
        places = np.concatenate([expected, some, some[::-1]])
        errors = np.abs(random.standard_normal(len(places)) ** 4).astype(np.float32)
        reference.update(places, errors)
        priorities.update(places, errors)
        check_valid(priorities)
        np.testing.assert_array_equal(_state(priorities), np.float32([*reference.weights, reference.maximum]))
    assert drawn > 500


@pytest.mark.parametrize("only", [0, 8, 9, 130, 1029, 3999])
def test_all_weight_in_one_place(only: int) -> None:
    priorities = _make(1000, 4)
    weights = np.zeros(4000, np.int64)
    for weight in (1, 3, MOST):
        weights[only] = weight
        _set(priorities, weights)
        places, probability = priorities.sample(np.array([[0.0, 0.5, ALMOST_ONE], [ALMOST_ONE] * 3]))
        assert (places.tolist(), probability.tolist()) == ([only] * 6, [1.0] * 6)


def test_a_transition_without_weight_is_never_drawn() -> None:
    """Nor at the edges, where a product rounds up to the total, whatever the total."""
    random = np.random.default_rng(1)
    for _ in range(50):
        weights = random.integers(1, 2 ** random.integers(1, 39), 600) * (random.random(600) < 0.3)
        weights[random.integers(600)] = 1
        weights[-int(random.integers(1, 300)) :] = 0
        weights[300] = MOST
        weights = (weights.astype(np.float32)).astype(np.int64)
        priorities = _make(100, 6)
        _set(priorities, weights)
        edges = np.array([0.0, ALMOST_ONE, 0.5, 1.0 - 2.0**-30])[:, None].repeat(7, axis=1)
        places, probability = priorities.sample(edges)
        assert (weights[places] > 0).all()
        assert (probability > 0).all()


def test_no_weight_is_lost_among_a_million() -> None:
    """The last of all draws hits the one quantum behind a million of the largest weights (float32 would lose it)."""
    priorities = _make(125_001, 8)
    weights = np.full(priorities.places, MOST)
    weights[-1] = 1
    _set(priorities, weights)
    check_valid(priorities)
    assert priorities._levels[-1].item() == (priorities.places - 1) * MOST + 1
    weights[:-1] = 2**20  # so many quanta that a float64 in [0, 1) tells them apart
    _set(priorities, weights)
    places, _ = priorities.sample(np.array([[ALMOST_ONE]]))
    assert places.tolist() == [priorities.places - 1]


def test_tick_and_env_of_a_place() -> None:
    priorities = _make(10, 3)
    for window_end in (1, 7, 10, 11, 25, 40):
        ticks = np.arange(max(0, window_end - 10), window_end).repeat(3)
        envs = np.tile([0, 1, 2], len(ticks) // 3)
        np.testing.assert_array_equal(priorities.tick_env(ticks % 10 * 3 + envs, window_end), (ticks, envs))


def test_a_state_that_is_none_is_refused() -> None:
    priorities = _full(5, 2)
    good = _state(priorities)
    for place, value in ((3, -1.0), (3, np.nan), (3, np.inf), (3, 1e-9), (3, 2.0), (10, np.nan), (10, 0.0), (10, 2e11)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(ValueError, match="which is not a weight"):
            priorities.load(bad)
    np.testing.assert_array_equal(_state(priorities), good)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_an_error_that_is_no_size_is_refused_and_changes_nothing(wrong: float) -> None:
    priorities = _full(5, 2)
    before = _state(priorities)
    with pytest.raises(ValueError, match="TD error of place 7 has the size"):
        priorities.update(np.array([3, 7]), np.float32([2.0, wrong]))
    np.testing.assert_array_equal(_state(priorities), before)


def test_more_ticks_than_the_window_has_are_refused() -> None:
    with pytest.raises(ValueError, match="6 ticks do not fit into a window of 5"):
        _make(5, 2).forget(0, 6)


@pytest.mark.parametrize("places", [1, 2, 3, 10, 998_400, 1_000_000, 2**20, 2**20 + 1, MOST_PRIORITIES])
def test_the_largest_total_fits(places: int) -> None:
    assert 2**61 < 2 * largest_weight(places) * places <= 2**63
    assert largest_weight(places) >= MOST


def test_weights_beyond_those_of_the_largest_window_are_told_apart() -> None:
    """With a million transitions: errors of 20,000 and 200,000 at exponent 1."""
    priorities = _full(10_000, 100, alpha=1.0)
    priorities.update(np.arange(3), np.float32([2e4, 2e5, 2e6]))
    np.testing.assert_array_equal(_state(priorities)[[0, 1, 2, -1]], np.float32([2e4, 2e5, 262_144.0, 262_144.0]))
    check_valid(priorities)
