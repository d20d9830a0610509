"""Learning curves as a picture: returns over steps and over wall-clock time, for one or several runs.

    python -m ringside.report.curve runs/pong --out docs/pictures/pong.png
    python -m ringside.report.curve quick=runs/pong rainbow=runs/pong-rainbow --out docs/pictures/pong-family.png
    python -m ringside.report.curve rainbow=runs/pong-rainbow --published --out pong.png

A single run appears with its training episodes; several runs with the mean of their last hundred, and evaluations.
`--published` adds published curves of the game over steps, up to the last step of the runs
(`ringside/report/published_curves.json`). The legend names the publisher, and says whether actions were sticky.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ringside.recording.totals import MEAN_OVER, mean_name
from ringside.report.plots import MARKERS, color_of, draw_line, style
from ringside.report.published import PublishedCurve, published_curves_of_game
from ringside.report.records import Records, load

LABELS = ("thousand steps (4 frames each)", "minutes")
STEPS, MINUTES = range(2)
"""Axes, as positions in `LABELS`."""


class Curve(NamedTuple):
    """A run and its name in the picture."""

    name: str
    run: Records

    @property
    def title(self) -> str:
        """Game, protocol, schedule and seed."""
        run = self.run
        return f"{run.game}, protocol {run.protocol}, {run.settings['schedule']}, seed {run.seed}"

    def at(self, steps: NDArray[np.float64], which: int) -> NDArray[np.float64]:
        """Positions of steps on the axis `which`: thousands (0) or minutes (1)."""
        if which == 0:
            return steps / 1e3
        known = np.isfinite(self.run.rounds["seconds"])
        return np.interp(steps, self.run.rounds["steps"][known], self.run.rounds["seconds"][known]) / 60


def curve_in(word: str) -> Curve:
    """Curve of `RUN`, or of `NAME=RUN`. Raises `RecordsError`."""
    name, path = ("", word) if "=" not in word or os.path.exists(word) else word.split("=", 1)
    return Curve(name or Path(path).name, load(Path(path)))


def draw(axis: Axes, curve: Curve, color: str, which: int, *, alone: bool) -> None:
    """Draw one curve over steps (`which` 0) or minutes (1)."""
    rounds, episodes, evaluations = curve.run.rounds, curve.run.episodes, curve.run.evaluations
    if alone:
        axis.plot(curve.at(episodes["steps"], which), episodes["return"], ".", color="#9ab", ms=3, label="episode")
    label = mean_name(len(episodes["steps"])) if alone else curve.name
    draw_line(axis, curve.at(rounds["steps"], which), rounds["mean_return_100"], color=color, lw=2, label=label)
    if not alone:
        x = evaluations["seconds"] / 60 if which == MINUTES else curve.at(evaluations["steps"], which)
        axis.plot(x, evaluations["mean_return"], "o", color=color, mfc="white", ms=6)


def draw_published(axis: Axes, curve: PublishedCurve, last_step: float) -> None:
    """Draw one published curve over steps, up to `last_step`, but at least its first point."""
    shown = max(1, int(np.searchsorted(curve.steps, last_step, side="right")))
    line_style: dict[str, Any] = {
        "color": "#777777",
        "marker": MARKERS.get(curve.agent, "v"),
        "mfc": "white",
        "ms": 3.5,
    }
    axis.plot(curve.steps[:shown] / 1e3, curve.returns[:shown], "--", lw=0.9, label=curve.label, **line_style)


def published_beside(curves: Sequence[Curve]) -> tuple[PublishedCurve, ...]:
    """Published curves of the one game of some runs.

    Raises:
        ValueError: the runs have several games, or no curve is published. The message is a sentence.
    """
    games = list(dict.fromkeys(curve.run.game for curve in curves))
    if len(games) > 1:
        raise ValueError(f"--published needs runs of one game; these are of {', '.join(games)}")
    found = published_curves_of_game(games[0])
    if not found:
        raise ValueError(f"there is no published curve of {games[0]} here; omit --published")
    return found


def picture(
    curves: Sequence[Curve], published: Sequence[PublishedCurve], over: Sequence[int] = (STEPS, MINUTES)
) -> Figure:
    """Figure of runs, with published curves over steps.

    Args:
        over: axes, over steps first.

    Raises:
        ValueError: no episode of a run has ended. The message is a sentence.
    """
    for curve in curves:
        if not np.isfinite(curve.run.rounds["mean_return_100"]).any():
            raise ValueError(f"no episode of {curve.name} has ended yet")
    alone = len(curves) == 1
    with style():
        width = 10 if len(over) > 1 else 7
        figure = Figure(figsize=(width, 4.2 if published else 3.6), layout="constrained", dpi=110)
        axes = figure.subplots(1, len(over), sharey=True, squeeze=False)[0]
        for which, axis in zip(over, axes, strict=True):
            for i, curve in enumerate(curves):
                draw(axis, curve, color_of(i), which, alone=alone)
            axis.set_xlabel(LABELS[which])
        for each in published:
            draw_published(axes[0], each, max(curve.run.steps for curve in curves))
        axes[0].set_ylabel(
            "raw return of training episodes" if alone else f"mean of up to {MEAN_OVER}; circles: evaluations"
        )
        if published:  # as many names as would hide the curves
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2 * len(over))
        else:
            axes[0].legend(loc="upper left")
        figure.suptitle("; ".join(dict.fromkeys(curve.title for curve in curves)))
    return figure


def main() -> None:
    """Draw the runs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN or NAME=RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--published", action="store_true", help="draw what published agents reached on the game, too")
    options = parser.parse_args()
    try:
        curves = [curve_in(word) for word in options.runs]
        picture(curves, published_beside(curves) if options.published else ()).savefig(options.out)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename or options.out}: {error.strerror}")


if __name__ == "__main__":
    main()
