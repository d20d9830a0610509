"""Published scores and learning curves with their sources and rules, from `published.json` and `published_curves.json`.

The files also say how their numbers were copied and checked. A score or a curve belongs to its rules. Agents evaluated
without sticky actions are never compared with runs that have them, and a curve beside a run says whether it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP
from shared.files.strict_json import read_json

SCORES = Path(__file__).parent / "published.json"
CURVES = Path(__file__).parent / "published_curves.json"
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


class _Curve(msgspec.Struct):
    agent: str
    game: str
    runs: int | None
    returns: Annotated[list[float], msgspec.Meta(min_length=1)]


class _Source(msgspec.Struct):
    """Curves of one publisher, with points at equal distances."""

    name: str
    source: str
    protocol: str
    sticky: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    first_frame: Annotated[int, msgspec.Meta(ge=0)]
    frames_between: Annotated[int, msgspec.Meta(ge=1)]
    curves: list[_Curve]


class _CurvesFile(msgspec.Struct):
    checked: str
    sources: list[_Source]


@cache
def published() -> tuple[tuple[Published, ...], str]:
    """All agents with scores, and a text on how their scores were checked."""
    found = read_json(SCORES)
    return tuple(Published(**agent) for agent in found["agents"]), found["checked"]


def comparable_agents(protocol: str) -> tuple[Published, ...]:
    """Agents evaluated with the same probability of sticky actions as a protocol."""
    if protocol not in PROTOCOLS:
        return ()
    return tuple(agent for agent in published()[0] if agent.sticky == PROTOCOLS[protocol].sticky)


@cache
def published_curves(path: Path = CURVES) -> tuple[tuple[PublishedCurve, ...], str]:
    """All curves in the order of the file, and a text on how they were copied and checked.

    Raises:
        msgspec.ValidationError: the file is damaged. The message names the field.
    """
    found = msgspec.convert(read_json(path), _CurvesFile)
    return tuple(_curve(source, curve) for source in found.sources for curve in source.curves), found.checked


def _curve(source: _Source, curve: _Curve) -> PublishedCurve:
    frames = source.first_frame + source.frames_between * np.arange(len(curve.returns), dtype=np.float64)
    return PublishedCurve(
        name=source.name,
        agent=curve.agent,
        game=curve.game,
        sticky=source.sticky,
        runs=curve.runs,
        source=source.source,
        protocol=source.protocol,
        steps=frames / FRAME_SKIP,
        returns=np.array(curve.returns, np.float64),
    )


def published_curves_of_game(game: str) -> tuple[PublishedCurve, ...]:
    """Published curves of one game; may be empty."""
    return tuple(curve for curve in published_curves()[0] if curve.game == game)
