"""Totals of a run's records: episodes, returns and evaluations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MEAN_OVER = 100
"""Episodes in the rolling mean of returns."""


def mean_name(episodes: int) -> str:
    """Name of the mean return of the newest `MEAN_OVER` episodes when `episodes` have ended."""
    return f"mean of {MEAN_OVER}" if episodes >= MEAN_OVER else f"mean of the last {episodes}"


@dataclass(frozen=True)
class EvaluationStatus:
    """The newest evaluation."""

    steps: int
    """Step of the version that was evaluated."""
    episodes: int
    mean_return: float
    best_mean: float
    """The best mean so far."""


class Totals:
    """Running totals.

    Attributes:
        episodes: how many have ended.
        best_return: of an episode; None: none has ended.
        evaluation: the newest evaluation beside training, and the best so far; None: there is none.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self.best_return: float | None = None
        self.evaluation: EvaluationStatus | None = None
        self._recent: deque[float] = deque(maxlen=MEAN_OVER)

    @property
    def mean_return_100(self) -> float | None:
        """Mean return of the newest `MEAN_OVER` episodes, or of all if fewer; None: no episode has ended."""
        return math.fsum(self._recent) / len(self._recent) if self._recent else None

    def add(self, record: Mapping[str, Any], episodes: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add the record of a round with its episodes, or of an evaluation; one that lacks figures is ignored."""
        for value in (float(episode["return"]) for episode in episodes):
            self.episodes += 1
            self._recent.append(value)
            self.best_return = value if self.best_return is None else max(value, self.best_return)
        ended, mean = record.get("episodes"), record.get("mean_return")
        if record["kind"] == "evaluation" and isinstance(ended, int) and isinstance(mean, int | float):
            best = mean if self.evaluation is None else max(mean, self.evaluation.best_mean)
            self.evaluation = EvaluationStatus(record["steps"], ended, mean, best)
