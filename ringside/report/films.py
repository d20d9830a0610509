"""Videos of evaluations in a report: of each run the newest, and the best where that is another."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

from ringside.report.comparison import Arm, Comparison
from ringside.report.figures import amount, score
from ringside.report.records import Records
from shared.errors import FileError
from shared.files.plain_files import read_bytes
from shared.process.ownership import evaluation_video

MOST_BYTES = 8 << 20
"""Largest video that a page includes."""
MOST_TOGETHER = 16 << 20
"""Most bytes of videos in one page."""


@dataclass(frozen=True)
class Film:
    """A video in a report."""

    caption: str
    source: str
    """Address that holds the whole file."""


def films(comparison: Comparison) -> dict[str, list[Film]]:
    """Videos of all runs by game, as many as fit into a page; a game without any is absent."""
    found: dict[str, list[Film]] = {}
    left = MOST_TOGETHER
    for arm, game in ((arm, game) for game in comparison.games for arm in comparison.arms):
        for run in arm.of(game):
            for what, row in _rows(run).items():
                content = _content(run, row, min(left, MOST_BYTES))
                if content is not None:
                    left -= len(content)
                    found.setdefault(game, []).append(_film(arm, run, what, row, content))
    return found


def _film(arm: Arm, run: Records, what: str, row: int, content: bytes) -> Film:
    steps, mean = (run.evaluations[column][row] for column in ("steps", "mean_return"))
    caption = f"{arm.label}, seed {run.seed}: {what}, at step {amount(steps)}. Its mean return is {score(mean)}."
    return Film(caption, "data:video/mp4;base64," + base64.b64encode(content).decode())


def _rows(run: Records) -> dict[str, int]:
    """Rows of the evaluations to show, by what they are; the best first."""
    means = run.evaluations["mean_return"]
    if not np.isfinite(means).any():
        return {}
    best, newest = int(np.nanargmax(means)), len(means) - 1
    return {"the newest evaluation": newest} if best == newest else {"the best evaluation": best, "the newest": newest}


def _content(run: Records, row: int, limit: int) -> bytes | None:
    """The video of an evaluation; None: there is none of at most `limit` bytes."""
    numbers = run.evaluations.get("evaluation")
    if numbers is None or not np.isfinite(numbers[row]):
        return None
    try:
        return read_bytes(evaluation_video(run.path, int(numbers[row])), limit)
    except (OSError, FileError):
        return None
