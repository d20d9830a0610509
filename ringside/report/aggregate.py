"""Aggregates of scores with intervals: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (arXiv:2108.13264).

Scores are human-normalized, float64[runs], one array for each game; games may have different numbers of runs. The
bootstrap is *stratified*: each replicate draws, with replacement, as many runs of every game as the game has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = Mapping[str, NDArray[np.float64]]
Drawn = Sequence[NDArray[np.float64]]
"""Scores of each game, float64[replicates, runs]."""
Statistic = Callable[[Drawn], NDArray[np.float64]]
"""Function of scores that returns one figure per replicate."""

REPLICATES = 10_000
CONFIDENCE = 0.95


def iqm(drawn: Drawn) -> NDArray[np.float64]:
    """Interquartile mean: mean of all runs without the lowest and the highest quarter (rounded down)."""
    runs = np.sort(np.concatenate(drawn, axis=1), axis=1)
    cut = runs.shape[1] // 4
    return np.asarray(runs[:, cut : runs.shape[1] - cut].mean(axis=1))


def median(drawn: Drawn) -> NDArray[np.float64]:
    """Median over games of the mean over runs."""
    return np.asarray(np.median([runs.mean(axis=1) for runs in drawn], axis=0))


def mean(drawn: Drawn) -> NDArray[np.float64]:
    """Mean over games of the mean over runs."""
    return np.asarray(np.mean([runs.mean(axis=1) for runs in drawn], axis=0))


def optimality_gap(drawn: Drawn) -> NDArray[np.float64]:
    """Mean shortfall of runs from 1, the human; less is better."""
    return np.asarray(np.maximum(1.0 - np.concatenate(drawn, axis=1), 0.0).mean(axis=1))


STATISTICS: dict[str, Statistic] = {"IQM": iqm, "Median": median, "Mean": mean, "Optimality gap": optimality_gap}


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval."""

    value: float
    low: float | None
    """None, like `high`, if no game has two runs, so that their spread is unknown."""
    high: float | None


def estimate(
    scores: Scores, statistic: Statistic, *, replicates: int = REPLICATES, confidence: float = CONFIDENCE
) -> Estimate:
    """Statistic of all scores, at least one of every game, with the percentile interval of the stratified bootstrap.

    The same scores always give the same interval.
    """
    games = [np.asarray(scores[game], np.float64) for game in sorted(scores)]
    value = float(statistic([runs[None, :] for runs in games])[0])
    if all(len(runs) < 2 for runs in games):
        return Estimate(value, None, None)
    generator = np.random.default_rng(0)
    drawn = [runs[generator.integers(len(runs), size=(replicates, len(runs)))] for runs in games]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(drawn), (tail, 1 - tail))
    return Estimate(value, float(low), float(high))
