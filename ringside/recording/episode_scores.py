"""Judging returns: the figures of a set of episodes, and the human-normalized score of their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.recording.reference_scores import human_normalised


@dataclass(frozen=True)
class Summary:
    """Raw returns of whole episodes, in figures."""

    episodes: int
    mean: float
    sd: float
    """Population standard deviation of the returns, not the error of their mean."""
    median: float
    best: float
    human_normalised: float | None
    """Of the mean: 0 for random play, 1 for the human of `reference_scores.SOURCE`; None: no reference for the game."""


def summarize(game: str, returns: Sequence[float] | np.ndarray) -> Summary:
    """Figures of raw returns float[episodes], of at least one episode."""
    values = np.asarray(returns, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"Returns of shape {values.shape} cannot be summarized; at least one episode is needed.")
    mean = float(values.mean())
    return Summary(
        episodes=len(values),
        mean=mean,
        sd=float(values.std()),
        median=float(np.median(values)),
        best=float(values.max()),
        human_normalised=human_normalised(game, mean),
    )
