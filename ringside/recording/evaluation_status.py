"""The newest evaluation of a run, as a person is told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationStatus:
    """The newest evaluation."""

    steps: int
    """Of the version that was evaluated."""
    episodes: int
    mean_return: float
    best_mean: float
    """The best mean so far."""
