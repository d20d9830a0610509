"""Aggregates and their intervals, against slow references that are plainly right."""

from __future__ import annotations

import itertools
from statistics import fmean
from statistics import median as plain_median

import numpy as np
import pytest

from ringside.report.aggregate import STATISTICS, estimate, iqm, mean, median, optimality_gap


def slowly(name: str, games: list[list[float]]) -> float:
    """Each statistic as Agarwal et al. 2021 say it in words."""
    runs = sorted(score for game in games for score in game)
    if name == "IQM":
        cut = int(0.25 * len(runs))
        return fmean(runs[cut : len(runs) - cut])
    if name == "Median":
        return plain_median(fmean(game) for game in games)
    if name == "Mean":
        return fmean(fmean(game) for game in games)
    return fmean(max(0.0, 1.0 - score) for score in runs)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 3), (4, 1), (7, 4)])
def test_statistics_are_what_the_paper_says(name: str, shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(sum(shape)).normal(1.0, 1.0, shape)
    found = estimate({f"game {i}": game for i, game in enumerate(scores)}, STATISTICS[name], replicates=10)
    assert found.value == pytest.approx(slowly(name, scores.tolist()))


def test_games_may_have_different_numbers_of_runs() -> None:
    games = [[1.0, 2.0, 9.0], [4.0], [0.5, 0.25]]
    scores = {str(i): np.array(game) for i, game in enumerate(games)}
    for name, statistic in STATISTICS.items():
        assert estimate(scores, statistic, replicates=10).value == pytest.approx(slowly(name, games))


def test_statistics_that_were_worked_out_by_hand() -> None:
    two_games = [np.array([[0.0, 1.0, 2.0, 3.0]]), np.array([[4.0, 5.0, 6.0, 100.0]])]
    assert iqm(two_games)[0] == 3.5  # of 2, 3, 4, 5
    assert median(two_games)[0] == pytest.approx((1.5 + 28.75) / 2)
    assert mean(two_games)[0] == pytest.approx((1.5 + 28.75) / 2)
    assert optimality_gap(two_games)[0] == pytest.approx(1 / 8)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_bootstrap_is_that_of_all_equally_likely_draws(name: str) -> None:
    games = [[0.0, 1.0, 5.0], [2.0, 3.0]]
    draws = itertools.product(itertools.product(games[0], repeat=3), itertools.product(games[1], repeat=2))
    every = sorted(slowly(name, [list(first), list(second)]) for first, second in draws)  # 27 x 4 of them
    found = estimate(
        {"a": np.array(games[0]), "b": np.array(games[1])}, STATISTICS[name], replicates=40_000, confidence=0.8
    )
    assert found.low is not None
    assert found.high is not None
    randint = [sum(value < bound - 1e-9 for value in every) / len(every) for bound in (found.low, found.high)]
    up_to = [sum(value <= bound + 1e-9 for value in every) / len(every) for bound in (found.low, found.high)]
    for tail, less, not_more in zip((0.1, 0.9), randint, up_to, strict=True):
        assert less - 0.02 <= tail <= not_more + 0.02


def test_draws_are_stratified_by_game() -> None:
    """Without strata, replicates would hold a game too often; with them, games that do not vary have no interval."""
    found = estimate({"a": np.array([0.0, 0.0]), "b": np.array([1.0, 1.0])}, mean)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_the_same_scores_give_the_same_interval() -> None:
    scores = {"a": np.array([0.1, 0.5, 0.9]), "b": np.array([2.0, 1.0, 3.0])}
    assert estimate(scores, iqm) == estimate(dict(reversed(scores.items())), iqm)


def test_one_run_a_game_has_no_interval() -> None:
    found = estimate({"a": np.array([0.5]), "b": np.array([1.5])}, iqm)
    assert (found.value, found.low, found.high) == (1.0, None, None)


def test_nothing_has_no_statistic() -> None:
    with pytest.raises(ValueError, match="At least one"):
        estimate({}, iqm)
    with pytest.raises(ValueError, match="At least one"):
        estimate({"a": np.array([])}, iqm)
