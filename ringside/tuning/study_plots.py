"""Plots of a study: its history, the evaluations of its trials, and the result by each setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ringside.report.plots import COLORS, Picture, save, style
from ringside.tuning.space import Space
from ringside.tuning.study import TrialResult
from shared.files.result_files import make_result_directory

COLUMNS = 3
BLUE, ORANGE, GREEN = COLORS[0], COLORS[1], COLORS[2]


def study_pictures(
    trials: Sequence[TrialResult], space: Space, importances: Mapping[str, float], directory: Path
) -> list[Picture]:
    """Draw the plots into the directory of a report. Raises `ConfigError` if it cannot be made."""
    make_result_directory("--out", directory)
    with style():
        pictures = [
            save(_history(trials), directory, "study-history", "Result of each trial, and the best so far."),
            save(_evaluations(trials), directory, "study-evaluations", "Evaluations of each trial; dashed: pruned."),
            save(_settings(trials, space), directory, "study-settings", "Result by each setting of the space."),
        ]
        if importances:
            caption = "Importance: share of the variance of the best results that a setting explains (PED-ANOVA)."
            pictures.append(save(_importances(importances), directory, "study-importances", caption))
    return pictures


def _history(trials: Sequence[TrialResult]) -> Figure:
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    complete = [(trial.number, trial.value) for trial in trials if trial.value is not None]
    best = -math.inf
    line = []
    for number, value in complete:
        best = max(best, value)
        line.append((number, best))
    axes.plot(*_columns(line), color=BLUE, drawstyle="steps-post", label="best so far")
    axes.plot(*_columns(complete), "o", color=BLUE, markersize=4, label="complete")
    pruned = [(trial.number, trial.evaluations[-1][1]) for trial in trials if trial.state == "pruned"]
    if pruned:
        axes.plot(*_columns(pruned), "x", color=ORANGE, label="pruned")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "trial", "mean return")
    axes.legend()
    return figure


def _evaluations(trials: Sequence[TrialResult]) -> Figure:
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    best = max((trial for trial in trials if trial.value is not None), key=lambda trial: trial.value or 0, default=None)
    for trial in trials:
        is_best = best is not None and trial.number == best.number
        axes.plot(
            [number + 1 for number, _ in trial.evaluations],
            [mean for _, mean in trial.evaluations],
            color=BLUE if is_best else "#999999",
            linestyle="--" if trial.state == "pruned" else "-",
            linewidth=2.0 if is_best else 0.9,
            marker="o",
            markersize=2.5,
            zorder=3 if is_best else 2,
            label=f"trial {trial.number}, the best" if is_best else None,
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "evaluation", "mean return")
    if best is not None:
        axes.legend()
    return figure


def _settings(trials: Sequence[TrialResult], space: Space) -> Figure:
    rows = -(-len(space) // COLUMNS)
    figure = Figure(figsize=(3.5 * min(COLUMNS, len(space)), 2.6 * rows), layout="constrained")
    for place, (name, dimension) in enumerate(space.items()):
        axes = figure.add_subplot(rows, min(COLUMNS, len(space)), place + 1)
        complete = [(trial.settings[name], trial.value) for trial in trials if trial.value is not None]
        texts = dimension.choices and not all(type(value) in (int, float) for value in dimension.choices)
        axes.plot(*_columns([(str(x) if texts else x, y) for x, y in complete]), "o", color=BLUE, markersize=4)
        if dimension.log:
            axes.set_xscale("log")
        _label(axes, name.replace("_", " "), "mean return" if place % COLUMNS == 0 else "")
    return figure


def _importances(importances: Mapping[str, float]) -> Figure:
    figure = Figure(figsize=(5.2, 0.5 + 0.4 * len(importances)), layout="constrained")
    axes = figure.add_subplot()
    ascending = sorted(importances.items(), key=lambda item: item[1])
    axes.barh([name.replace("_", " ") for name, _ in ascending], [share for _, share in ascending], color=GREEN)
    _label(axes, "importance", "")
    return figure


def _columns(points: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [x for x, _ in points], [y for _, y in points]


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
