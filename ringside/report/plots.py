"""Learning curves, and statistics of all games, by matplotlib.

Colors are those of Okabe & Ito (2008), which color-blind people tell apart; no meaning depends on color alone.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import matplotlib.style as mpl_style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from ringside.records.scores import REFERENCE
from ringside.report.comparison import (
    CURVE_REPLICATES,
    THRESHOLDS,
    Arm,
    Comparison,
    Estimate,
    PublishedCurve,
    bootstrap,
    comparable_agents,
    profile,
)
from ringside.report.records import Records
from shared.files.atomic import write_atomic
from shared.text import readable

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)))
"""Line styles: with seven colors they tell 21 arms apart."""
GRAY = "#777777"
"""Color of what others published."""
IMPROVEMENT = "Probability of improvement"
MARKERS = {"DQN": "s", "Rainbow": "D", "IQN": "^"}
POINTS = 200
"""Points of the band of several seeds."""

_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,  # names come from files
}


@dataclass(frozen=True)
class Picture:
    """A figure of a report."""

    caption: str
    uri: str
    """Its PNG as a data URI, so that the page needs no other file."""


style = partial(mpl_style.context, _STYLE, after_reset=True)
"""Context with the style of all figures; draw and save them inside it.

A `matplotlibrc` of the working directory, which may belong to a foreign run, has no effect.
"""


def save(figure: Figure, directory: Path, name: str, caption: str) -> Picture:
    """Write a figure as NAME.png and keep it for the page. The same figure always gives the same bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160)
    write_atomic(directory / f"{name}.png", drawn.getvalue(), forced=False)
    return Picture(caption, "data:image/png;base64," + base64.b64encode(drawn.getvalue()).decode())


def color_of(i: int) -> str:
    """Color of the i-th arm."""
    return COLORS[i % len(COLORS)]


Axis = Literal["steps", "hours"]


def learning_points(run: Records, axis: Axis) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Curve of a run: ascending x, and the mean return of the last episodes, where both are known."""
    x = run.rounds["steps"] if axis == "steps" else run.rounds["seconds"] / 3600
    y = run.rounds["mean_return_100"]
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    ascending = np.diff(np.maximum.accumulate(x), prepend=-np.inf) > 0
    return x[ascending], y[ascending]


def seed_band(curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> NDArray[np.float64] | None:
    """x, mean, minimum and maximum over seeds, float64[4, points], where all have values; None if nowhere."""
    if not all(len(x) for x, _ in curves):
        return None
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if first >= last:
        return None
    grid = np.linspace(first, last, POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return np.stack([grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)])


def has_curve(comparison: Comparison, game: str, axis: Axis) -> bool:
    """True if some run of a game has a point to draw: the mean return of an episode, or an evaluation."""
    runs = [run for run in comparison.runs if run.game == game]
    return any(len(learning_points(run, axis)[0]) or len(run.evaluations["steps"]) for run in runs)


def learning_curve(comparison: Comparison, game: str, axis: Axis, published: Sequence[PublishedCurve] = ()) -> Figure:
    """Training returns of a game by arm: mean over seeds, range of seeds as a band, evaluations as circles.

    Args:
        published: curves to draw over steps, up to the last step of the runs.
    """
    runs = [run for run in comparison.runs if run.game == game]
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for i, arm in enumerate(comparison.arms):
        if arm.of(game):
            _draw_arm(axes, arm, game, axis, color_of(i), DASHES[i % len(DASHES)])
    for each in published:
        _draw_published(axes, each, max(run.steps for run in runs))
    steps = "steps" if any(run.env for run in runs) else "steps (4 frames each)"
    axes.set_xlabel(steps if axis == "steps" else "hours of wall-clock time")
    axes.set_ylabel("return of an episode")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if axis == "steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    _references(axes, comparison.protocol, game)
    figure.legend(loc="outside lower left", handlelength=1.6, ncols=1 if published else 2, columnspacing=1.2)
    return figure


def intervals(comparison: Comparison) -> Figure:
    """Aggregates and probabilities of improvement of all arms, with their intervals; those of published agents."""
    panels: dict[str, list[tuple[str, Estimate, str]]] = {}
    for i, arm in enumerate(comparison.arms):
        for name, found in comparison.aggregates(arm).items():
            panels.setdefault(name, []).append((arm.label, found, color_of(i)))
        for other, found in comparison.improvements(arm).items():
            panels.setdefault(IMPROVEMENT, []).append((f"{arm.label} over {other}", found, color_of(i)))
    for agent in comparable_agents(comparison.protocol):
        for name, value in comparison.published_aggregates(agent).items():
            panels[name].append((agent.name, Estimate(value), GRAY))
    rows = [len(each) for each in panels.values()]
    figure = Figure(figsize=(4.6, 0.5 * len(rows) + 0.2 * sum(rows)), layout="constrained")
    for axes, (name, each) in zip(figure.subplots(len(rows), height_ratios=rows), panels.items(), strict=True):
        for y, (_, found, color) in enumerate(each):
            low, high = (found.value if end is None else end for end in (found.low, found.high))
            ends = np.maximum(0.0, [[found.value - low], [high - found.value]])  # a percentile may lie beyond the value
            axes.errorbar(found.value, y, xerr=ends, fmt="o", color=color, ms=4)
        axes.set_yticks(range(len(each)), [textwrap.fill(label, 30) for label, _, _ in each], fontsize=7)
        axes.set_ylim(len(each) - 0.4, -0.6)
        axes.set_title(name, loc="left", fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


def performance_profiles(comparison: Comparison) -> Figure:
    """Performance profiles of all arms, with bands."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot(
        xlabel="human-normalized score", ylabel="share of runs above it", xlim=(0, 2), ylim=(0, 1)
    )
    for i, arm in enumerate(comparison.arms):
        value, low, high = bootstrap(comparison.normalized(arm), profile, CURVE_REPLICATES)
        axes.fill_between(THRESHOLDS, low, high, color=color_of(i), alpha=0.18, linewidth=0)
        look: Any = {"color": color_of(i), "linestyle": DASHES[i % len(DASHES)]}
        axes.plot(THRESHOLDS, value, label=textwrap.fill(arm.label, 34), **look)
    axes.legend()
    return figure


def _draw_arm(axes: Axes, arm: Arm, game: str, axis: Axis, color: str, dashes: Any) -> None:
    """Draw the curves of one arm in a color and with dashes; the first has its label."""
    runs = arm.of(game)
    curves = [learning_points(run, axis) for run in runs]
    label = textwrap.fill(arm.label if len(runs) == 1 else f"{arm.label}: {len(runs)} seeds", 34)
    line: dict[str, Any] = {"color": color, "linestyle": dashes, "linewidth": 1.6}
    if len(runs) > 1 and (band := seed_band(curves)) is not None:
        axes.fill_between(band[0], band[2], band[3], color=color, alpha=0.18, linewidth=0)
        axes.plot(band[0], band[1], label=label, **line)
        line, label = {"color": color, "linewidth": 0.6, "alpha": 0.5}, "_"
    for x, y in curves:
        _draw_line(axes, x, y, label=label, **line)
        label = "_"
    for run in runs:
        x = run.evaluations["steps"] if axis == "steps" else run.evaluations["seconds"] / 3600
        _draw_line(
            axes, x, run.evaluations["mean_return"], color=color, linestyle="none", marker="o", mfc="white", ms=4
        )


def _draw_line(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], **look: Any) -> None:
    """Draw the points that are known as a line; one alone as a point with its value."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) == 1:
        look["marker"] = "o"
        axes.annotate(readable(y[0]), (x[0], y[0]), xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.plot(x, y, **look)


def _draw_published(axes: Axes, curve: PublishedCurve, last_step: float) -> None:
    """Draw one published curve up to a step, but at least its first point."""
    kept = slice(max(1, int(np.searchsorted(curve.steps, last_step, side="right"))))
    look: dict[str, Any] = {"marker": MARKERS.get(curve.agent, "v"), "mfc": "white", "ms": 3.5, "lw": 0.9}
    axes.plot(curve.steps[kept], curve.returns[kept], "--", color=GRAY, label=curve.label, **look)


def _references(axes: Axes, protocol: str, game: str) -> None:
    """Draw levels of random play, the human and published agents that lie near the range of the axes."""
    low, high = axes.get_ylim()
    margin = 0.35 * (high - low)
    levels = [(agent.name, agent.scores[game]) for agent in comparable_agents(protocol) if game in agent.scores]
    levels += list(zip(("random", "human"), REFERENCE.get(game, ()), strict=False))
    at: dict[float, list[str]] = {}
    for name, level in levels:
        if low - margin <= level <= high + margin:
            near = next((other for other in at if abs(other - level) < 0.04 * (high - low)), level)
            at.setdefault(near, []).append(name)
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (3, 0), "textcoords": "offset points"}
    for level, names in at.items():
        axes.axhline(level, color=GRAY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(", ".join(names), (1.0, level), va="center", annotation_clip=False, fontsize=7, **beside)
