"""Scores: the figures of a set of episodes, and the human-normalized score of their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.files.strict_json import read_json

_FOUND = read_json(Path(__file__).parent / "reference_scores.json")
SOURCE: str = _FOUND["source"]
"""Source of the reference values: mean returns of at least three episodes of at most 108,000 frames."""
REFERENCE: dict[str, tuple[float, float]] = {
    game: (random, human) for game, (random, human) in _FOUND["scores"].items()
}
"""Mean returns of random play and of a professional tester, by game."""


def human_normalized(game: str, score: float) -> float | None:
    """Score normalized to 0 for random play and 1 for the human; None without reference values."""
    if game not in REFERENCE:
        return None
    random, human = REFERENCE[game]
    return (score - random) / (human - random)


@dataclass(frozen=True)
class Summary:
    """Raw returns of whole episodes, in figures."""

    episodes: int
    mean: float
    sd: float
    """Population standard deviation of the returns, not the error of their mean."""
    median: float
    best: float
    human_normalized: float | None
    """Score of the mean: 0 for random play, 1 for the human of `SOURCE`; None: no reference for the game."""


def summarize(game: str, returns: Sequence[float] | np.ndarray) -> Summary:
    """Figures of raw returns float[episodes], of at least one episode."""
    values = np.asarray(returns, np.float64)
    mean = float(values.mean())
    return Summary(
        episodes=len(values),
        mean=mean,
        sd=float(values.std()),
        median=float(np.median(values)),
        best=float(values.max()),
        human_normalized=human_normalized(game, mean),
    )
