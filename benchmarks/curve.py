"""Learning curves as a picture: returns over steps and over wall-clock time, of one run or of several side by side.

    python -m benchmarks.curve runs/pong --out docs/pong.png
    python -m benchmarks.curve quick=runs/pong rainbow=runs/pong-rainbow --out docs/pong-family.png

A run alone is shown with its training episodes; several with the mean of their last hundred, and their evaluations.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray

from shared.config import CONFIG_FILE, METRICS_FILE
from watch.metrics import read_metrics

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

MEAN_OVER = 100
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00")
"""After Okabe and Ito: told apart by the colour-blind."""
LABELS = ("thousand steps (4 frames each)", "minutes")


class Curve(NamedTuple):
    """The records of one run."""

    name: str
    title: str
    episodes: list[dict[str, Any]]
    rounds: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    def at(self, records: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where records lie: thousands of steps, and minutes."""
        steps = np.array([record["steps"] for record in records], float)
        known = [record["steps"] for record in self.rounds], [record["seconds"] for record in self.rounds]
        return steps / 1e3, np.interp(steps, *known) / 60


def curve_of(word: str) -> Curve:
    """The curve of `RUN`, or of `NAME=RUN`."""
    name, _, path = ("", "", word) if Path(word).exists() else word.partition("=")
    run = Path(path)
    records = list(read_metrics(run / METRICS_FILE))
    config = json.loads((run / CONFIG_FILE).read_text())
    play, learn = config["play"], config["learn"]
    return Curve(
        name or run.name,
        f"{play['game']}, protocol {play['protocol']}, {learn['schedule']}, seed {config['run']['seed']}",
        [record for record in records if record["kind"] == "episode"],
        [record for record in records if record["kind"] == "round" and record["mean_return_100"] is not None],
        [record for record in records if record["kind"] == "evaluation"],
    )


def draw(axis: Axes, curve: Curve, colour: str, which: int, *, alone: bool) -> None:
    """One curve over steps (`which` 0) or minutes (1)."""
    if alone:
        returns = [record["return"] for record in curve.episodes]
        axis.plot(curve.at(curve.episodes)[which], returns, ".", color="#9ab", ms=3, label="episode")
    means = [record["mean_return_100"] for record in curve.rounds]
    label = f"mean of {MEAN_OVER}" if alone else curve.name
    axis.plot(curve.at(curve.rounds)[which], means, color=colour, lw=2, label=label)
    if not alone:
        evaluations = [record["mean_return"] for record in curve.evaluations]
        axis.plot(curve.at(curve.evaluations)[which], evaluations, "o", color=colour, mfc="white", ms=6)


def main() -> None:
    """Draw over steps and over time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN or NAME=RUN")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    curves = [curve_of(word) for word in options.runs]
    for curve in curves:
        if not curve.rounds:
            parser.error(f"no episode of {curve.name} has ended yet")
    alone = len(curves) == 1
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for which, axis in enumerate(axes):
        for curve, colour in zip(curves, cycle(COLOURS), strict=False):
            draw(axis, curve, colour, which, alone=alone)
        axis.set_xlabel(LABELS[which])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("raw return of training episodes" if alone else f"mean of {MEAN_OVER}; circles: evaluations")
    axes[0].legend(loc="upper left")
    figure.suptitle("; ".join(dict.fromkeys(curve.title for curve in curves)))
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
