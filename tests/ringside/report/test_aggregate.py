"""Aggregates and their intervals, against slow references that are plainly right."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from ringside.report import comparison
from ringside.report.comparison import STATISTICS, THRESHOLDS, bootstrap, improvement, mean, profile


def rliable(games: Sequence[Sequence[float]]) -> dict[str, float]:
    """The statistics of Agarwal et al. 2021 by the formulas of rliable (metrics.py at commit 3ccd9f4d)."""
    runs, means = np.sort(np.concatenate(games)), [np.mean(game) for game in games]
    cut = int(0.25 * runs.size)
    found = {"IQM": np.mean(runs[cut : runs.size - cut]), "Median": np.median(means), "Mean": np.mean(means)}
    return found | {"Optimality gap": 1.0 - np.mean(np.minimum(runs, 1.0))}


def rliable_improvement(x: np.ndarray, y: np.ndarray) -> float:
    """P(X > Y) as rliable has it: Mann and Whitney's U, of ranks of which equal scores share the mean, over N K."""
    found = []
    for task in range(x.shape[1]):
        both = np.concatenate([x[:, task], y[:, task]])
        ranks = [(np.sum(both < score) + 1 + np.sum(both <= score)) / 2 for score in x[:, task]]
        found.append((sum(ranks) - len(x) * (len(x) + 1) / 2) / (len(x) * len(y)))
    return float(np.mean(found))


@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_profiles_and_improvement_are_those_of_rliable_on_the_same_scores(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    x, y = (rng.normal(0.5, 0.8, (runs, 26)).round(1) for runs in (seeds, 4))  # rounded: some are equal
    assert bootstrap([*x.T, *y.T], improvement, 10)[0] == pytest.approx(rliable_improvement(x, y), rel=1e-12)
    shares = bootstrap([*x.T], profile, 10)[0]
    assert shares.tolist() == pytest.approx([float(np.mean(x > tau)) for tau in THRESHOLDS], rel=1e-12)


def test_intervals_of_profiles_and_improvement_are_those_of_all_equally_likely_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "CONFIDENCE", 0.8)
    x, y = [[0.0, 0.5, 1.5], [0.2, 1.0, 1.9]], [[0.5, 0.7], [1.0, 0.1]]
    draws = [itertools.product(*(itertools.product(game, repeat=len(game)) for game in each)) for each in (x, y)]
    first, second = (np.array([np.array(draw).T for draw in each]) for each in draws)
    shares = (first[:, :, :, None] > THRESHOLDS).mean(axis=(1, 2))
    better = [rliable_improvement(one, other) for one in first for other in second]
    games = [[np.array(game) for game in each] for each in (x, y)]
    for found, every in (
        (bootstrap(games[0], profile, 20_000), shares),
        (bootstrap([*games[0], *games[1]], improvement, 20_000)[:, None], np.array(better)[:, None]),
    ):
        for tail, bound in zip((0.1, 0.9), found[1:], strict=True):
            assert np.all((every < bound - 1e-9).mean(axis=0) - 0.02 <= tail)
            assert np.all(tail <= (every <= bound + 1e-9).mean(axis=0) + 0.02)


@pytest.mark.parametrize("runs", [(1,), (5,), (3,) * 5, (1,) * 4, (4,) * 7, (5,) * 26, (3, 1, 2)])
def test_statistics_are_those_of_rliable_also_of_different_numbers_of_runs(runs: tuple[int]) -> None:
    rng = np.random.default_rng(sum(runs))
    games = [rng.normal(1.0, 1.0, count).round(1) for count in runs]  # some are equal
    found = {name: bootstrap(games, statistic, 10)[0] for name, statistic in STATISTICS.items()}
    assert found == pytest.approx(rliable(games), rel=1e-12)


def test_statistics_that_were_worked_out_by_hand() -> None:
    two_games = [np.array([0.0, 1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0, 100.0])]
    found = {name: bootstrap(two_games, statistic, 10)[0] for name, statistic in STATISTICS.items()}
    middle = (1.5 + 28.75) / 2
    assert found == pytest.approx({"IQM": 3.5, "Median": middle, "Mean": middle, "Optimality gap": 1 / 8})


@pytest.mark.parametrize("name", STATISTICS)
def test_the_bootstrap_is_that_of_all_equally_likely_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "CONFIDENCE", 0.8)
    games = [[0.0, 1.0, 5.0], [2.0, 3.0]]
    draws = itertools.product(itertools.product(games[0], repeat=3), itertools.product(games[1], repeat=2))
    every = np.array([rliable(draw)[name] for draw in draws])  # 27 x 4 of them
    _, low, high = bootstrap([*map(np.array, games)], STATISTICS[name], 40_000)
    for tail, bound in ((0.1, low), (0.9, high)):
        assert (every < bound - 1e-9).mean() - 0.02 <= tail <= (every <= bound + 1e-9).mean() + 0.02


def test_draws_are_stratified_by_game_and_the_same_at_each_call() -> None:
    """Without strata, replicates would hold a game too often; with them, games that do not vary have no interval."""
    assert bootstrap([np.array([0.0, 0.0]), np.array([1.0, 1.0])], mean, 100).tolist() == [0.5, 0.5, 0.5]
    games = [np.array([0.1, 0.5, 0.9]), np.array([2.0, 1.5, 3.0, 7.0])]
    assert bootstrap(games, mean, 20).tolist() == bootstrap(games, mean, 20).tolist()
