"""Published learning curves: mean return by frames with source and rules, from `published_curves.json`.

The file also says how the curves were copied and checked. A curve belongs to its rules, as a score does (published.py):
a comparison with a run must state whether actions were sticky.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.recording.scores import REFERENCE
from shared.config.settings import FRAME_SKIP
from shared.files.atomic import read_json

PATH = Path(__file__).parent / "published_curves.json"
MOST_POINTS = 1_000
"""Most points of a curve."""


@dataclass(frozen=True)
class PublishedCurve:
    """One agent of the literature on one game."""

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
def published_curves(path: Path = PATH) -> tuple[tuple[PublishedCurve, ...], str]:
    """All curves in the order of the file, and a text on how they were copied and checked.

    Raises:
        ValueError: the file is damaged. The message is a sentence.
    """
    found = read_json(path)
    sources = _field(found, "sources", list, str(path))
    return tuple(curve for each in sources for curve in _curves(each, path)), _field(found, "checked", str, str(path))


def published_curves_of_game(game: str) -> tuple[PublishedCurve, ...]:
    """Published curves of one game; may be empty."""
    return tuple(curve for curve in published_curves()[0] if curve.game == game)


def _curves(source: Any, path: Path) -> list[PublishedCurve]:
    """Curves of one source. Raises `ValueError`."""
    where = f"{path}, {_field(source, 'name', str, str(path))}"
    first = _field(source, "first_frame", int, where)
    between = _field(source, "frames_between", int, where)
    sticky = _field(source, "sticky", float, where)
    if first < 0 or between < 1 or not 0 <= sticky < 1:
        raise ValueError(f"{where}: first_frame, frames_between or sticky is out of range.")
    curves = []
    for each in _field(source, "curves", list, where):
        agent, game = _field(each, "agent", str, where), _field(each, "game", str, where)
        of = f"{where}, {agent} on {game}"
        if game not in REFERENCE:
            raise ValueError(f"{of}: there is no such game.")
        returns = _field(each, "returns", list, of)
        if not 1 <= len(returns) <= MOST_POINTS:
            raise ValueError(f"{of}: it has {len(returns):,} points; it must have 1 to {MOST_POINTS:,}.")
        if not all(type(value) in (int, float) and math.isfinite(value) for value in returns):
            raise ValueError(f"{of}: a return is no number.")
        curves.append(
            PublishedCurve(
                name=source["name"],
                agent=agent,
                game=game,
                sticky=sticky,
                runs=None if each.get("runs") is None else _field(each, "runs", int, of),
                source=_field(source, "source", str, where),
                protocol=_field(source, "protocol", str, where),
                steps=(first + between * np.arange(len(returns), dtype=np.float64)) / FRAME_SKIP,
                returns=np.array(returns, np.float64),
            )
        )
    return curves


def _field(values: Any, name: str, kind: type, where: str) -> Any:
    """A value of a JSON object, of exactly this type. Raises `ValueError`."""
    value = values.get(name) if isinstance(values, dict) else None
    if type(value) is not kind:
        raise ValueError(f"{where} is damaged: {name} is {value!r:.80}.")
    return value
