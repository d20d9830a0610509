"""Published scores and learning curves with their sources and rules, from `published.json` and `published_curves.json`.

The files also say how their numbers were copied and checked. A score or a curve belongs to its rules. Agents with
another chance of sticky actions than a run are never compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP
from shared.files.strict_json import read_json

FRAMES = 200_000_000
"""Training frames of all agents with scores."""


@dataclass(frozen=True)
class Published:
    """Scores of one agent of the literature."""

    name: str
    sticky: float
    """Probability of a sticky action in its evaluation."""
    source: str
    protocol: str
    """Other rules of its evaluation, as text."""
    scores: Mapping[str, float]
    """Mean return by game; games without a published score are missing."""


@dataclass(frozen=True)
class PublishedCurve:
    """Learning curve of one agent of the literature on one game."""

    name: str
    """Publisher."""
    agent: str
    game: str
    sticky: float
    """Probability of a sticky action in training and evaluation."""
    runs: int | None
    """Number of runs of which it is the mean; None: the source does not say."""
    source: str
    """Source of the data."""
    protocol: str
    """Rules, including sticky actions and the episodes of a mean return, as text."""
    steps: NDArray[np.float64]
    """Position of each return, [points], in agent steps of `FRAME_SKIP` frames, ascending: the middle of the steps
    whose training episodes it averages, or the step of the evaluation."""
    returns: NDArray[np.float64]
    """Mean raw returns, [points]."""

    @property
    def label(self) -> str:
        """Label in a legend."""
        rules = f"sticky {self.sticky:g}" if self.sticky else "not sticky"
        return f"{self.agent} ({self.name}), {rules}" + (f", {self.runs} runs" if self.runs else "")


@cache
def published() -> tuple[tuple[Published, ...], str]:
    """All agents with scores, and a text on how their scores were checked."""
    found = read_json(Path(__file__).parent / "published.json")
    return tuple(Published(**agent) for agent in found["agents"]), found["checked"]


def comparable_agents(protocol: str) -> tuple[Published, ...]:
    """Agents evaluated with the same probability of sticky actions as a protocol."""
    return tuple(agent for agent in published()[0] if _has_sticky(protocol, agent.sticky))


@cache
def published_curves() -> tuple[tuple[PublishedCurve, ...], str]:
    """All curves in the order of the file, and a text on how they were copied and checked."""
    found = read_json(Path(__file__).parent / "published_curves.json")
    curves = []
    for source in found["sources"]:
        told = {name: source[name] for name in ("name", "sticky", "source", "protocol")}
        for curve in source["curves"]:
            returns = np.array(curve["returns"], np.float64)
            frames = source["first_frame"] + source["frames_between"] * np.arange(len(returns), dtype=np.float64)
            curves.append(PublishedCurve(**told, **curve | {"steps": frames / FRAME_SKIP, "returns": returns}))
    return tuple(curves), found["checked"]


def comparable_curves(protocol: str, game: str) -> tuple[PublishedCurve, ...]:
    """Curves of a game, trained with the same probability of sticky actions as a protocol."""
    return tuple(each for each in published_curves()[0] if each.game == game and _has_sticky(protocol, each.sticky))


def _has_sticky(protocol: str, sticky: float) -> bool:
    return protocol in PROTOCOLS and PROTOCOLS[protocol].sticky == sticky
