"""Figures of a report by matplotlib: learning curves, scores beside published ones, aggregates.

Colors are those of Okabe & Ito (2008), which color-blind people tell apart; no meaning depends on color alone.
"""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ringside.recording.metric_names import displayed, metric_of, metrics_of
from ringside.recording.scores import REFERENCE, human_normalized
from ringside.report.comparison import Arm, Comparison
from ringside.report.published import comparable_agents
from ringside.report.records import Records
from shared.files.atomic import write_atomic
from shared.text import readable, short

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)))
"""Line styles, for more arms than colors."""
MARKERS = {"DQN": "s", "Rainbow": "D", "IQN": "^"}
MOST_METRICS = 9
"""Most charts of metrics; a damaged file may name any number."""
POINTS = 200
"""Most points of a line: about one for every two or three pixels of width."""

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#333333",
    "axes.axisbelow": True,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "ringside",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """A figure of a report."""

    name: str
    """Name of its PNG without suffix."""
    caption: str
    svg: str
    """Data URI, so that ids inside do not collide with those of other figures."""


@contextmanager
def style() -> Iterator[None]:
    """Style of all figures; draw and save them inside the block.

    A `matplotlibrc` of the working directory, which may belong to a foreign run, has no effect.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def save(figure: Figure, directory: Path, name: str, caption: str) -> Picture:
    """Write a figure as NAME.png and keep it as SVG. The same figure always gives the same SVG."""
    write_atomic(directory / f"{name}.png", partial(figure.savefig, format="png", dpi=160), forced=False)
    figure.set_layout_engine("none")  # the layout is done; a second one takes a third of the time
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub(r'(?<= d=")[^"]*', _round_path, buffer.getvalue())
    return Picture(name, caption, "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode())


def _round_path(path: re.Match[str]) -> str:
    """Data of an SVG path, rounded to a hundredth of a point, which takes a third of the space."""
    return re.sub(r"\.(\d\d)\d+", r".\1", path[0]).replace("\n", "")


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def color_of(i: int) -> str:
    """Color of the i-th arm."""
    return COLORS[i % len(COLORS)]


def _dash(i: int) -> Any:
    return DASHES[i // len(COLORS) % len(DASHES)]


def _wrapped(label: str) -> str:
    """The label of an arm in lines that fit a legend."""
    return textwrap.fill(label, 34)


class Numbers(Formatter):
    """Labels of ticks with as many digits as tell all of them apart."""

    def __call__(self, value: float, pos: int | None = None) -> str:
        """Label of one tick."""
        return short(value)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of all ticks of an axis."""
        for digits in range(3, 16):
            labels = [short(value, digits) for value in values]
            if len(set(labels)) == len(labels):
                break
        return labels


def draw_line(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], **line_style: Any) -> None:
    """Draw the points that are known as a line; one alone as a point with its value."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) == 1:
        line_style["marker"] = "o"
        axes.annotate(readable(y[0]), (x[0], y[0]), xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.plot(x, y, **line_style)


# --- learning curves

Axis = Literal["steps", "hours"]


def learning_points(
    run: Records, axis: Axis, column: str = "mean_return_100"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Curve of a run: ascending x, and the mean return of the last episodes or another column, where both are known."""
    x = run.rounds["steps"] if axis == "steps" else run.rounds["seconds"] / 3600
    y = run.rounds.get(column, np.full(len(x), np.nan))
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    ascending = np.concatenate([[True], x[1:] > np.maximum.accumulate(x)[:-1]]) if len(x) else np.zeros(0, bool)
    return x[ascending], y[ascending]


def seed_band(
    curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """x, mean, minimum and maximum over seeds, float64[points], where all have values; None if they share no range."""
    if not curves or not all(len(x) for x, _ in curves):
        return None
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if first >= last:
        return None
    grid = np.linspace(first, last, POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def has_curve(comparison: Comparison, game: str, axis: Axis) -> bool:
    """True if some run of a game has a point to draw: the mean return of an episode, or an evaluation."""
    runs = [run for run in comparison.runs if run.game == game]
    return any(len(learning_points(run, axis)[0]) or len(run.evaluations["steps"]) for run in runs)


def learning_curve(comparison: Comparison, game: str, axis: Axis) -> Figure:
    """Training returns of a game by arm: mean over seeds, range of seeds as a band, evaluations as circles."""
    figure, axes = _figure(4.6, 3.4)
    hours = max((_last_hour(run) for run in comparison.runs if run.game == game), default=0.0)
    unit, scale = ("hours", 1.0) if hours >= 2 else ("minutes", 60.0)
    for i, arm in enumerate(comparison.arms):
        if arm.of(game):
            line_style = {"color": color_of(i), "linestyle": _dash(i)}
            _draw_arm(axes, arm, game, axis, 1.0 if axis == "steps" else scale, line_style)
    steps = "steps" if any(run.env for run in comparison.runs if run.game == game) else "steps (4 frames each)"
    axes.set_xlabel(steps if axis == "steps" else f"{unit} of wall-clock time")
    axes.set_ylabel("return of an episode")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    for each in (axes.xaxis, axes.yaxis):
        each.set_major_formatter(Numbers())
    axes.set_xlim(left=0)
    _references(axes, comparison.protocol, game)
    figure.legend(loc="outside lower left", handlelength=1.6, ncols=2, columnspacing=1.2)
    return figure


def metric_names(comparison: Comparison, game: str) -> list[str]:
    """Metrics of learning that some run of a game has and screens show, in the order of the first run."""
    runs = [run for run in comparison.runs if run.game == game]
    drawn = [(run, name) for run in runs for name in displayed(metrics_of(run.rounds))]
    names = [name for run, name in drawn if len(learning_points(run, "steps", name)[0])]
    return list(dict.fromkeys(names))[:MOST_METRICS]


def metric_chart(comparison: Comparison, game: str, name: str) -> Figure:
    """A small chart of a metric of a game over steps, with the mean over the seeds of each arm."""
    figure, axes = _figure(3.4, 2.1)
    for i, arm in enumerate(comparison.arms):
        curves = [learning_points(run, "steps", name) for run in arm.of(game)]
        curves = [(x, y) for x, y in curves if len(x)]
        band = seed_band(curves)
        for x, y in [band[:2]] if band is not None else curves:
            draw_line(axes, x, y, color=color_of(i), linestyle=_dash(i), linewidth=1.3)
    metric = metric_of(name)
    axes.set_title(f"{metric.label}, {metric.unit}" if metric.unit else metric.label, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    for each in (axes.xaxis, axes.yaxis):
        each.set_major_formatter(Numbers())
    axes.set_xlim(left=0)
    return figure


def _draw_arm(axes: Axes, arm: Arm, game: str, axis: Axis, scale: float, line_style: dict[str, Any]) -> None:
    """Draw the curves of one arm, of which the first has its label; `scale` multiplies x."""
    runs = arm.of(game)
    curves = [(scale * x, y) for x, y in (learning_points(run, axis) for run in runs)]
    band = seed_band(curves) if len(runs) > 1 else None
    label = _wrapped(arm.label if len(runs) == 1 else f"{arm.label}: {len(runs)} seeds")
    thin = {"linewidth": 1.6, **line_style}
    if band is not None:
        grid, mean, least, most = band
        axes.fill_between(grid, least, most, color=line_style["color"], alpha=0.18, linewidth=0)
        axes.plot(grid, mean, linewidth=1.8, label=label, **line_style)
        thin, label = {"color": line_style["color"], "linewidth": 0.6, "alpha": 0.5}, "_"
    circles = {"linestyle": "none", "marker": "o", "markersize": 4, "markerfacecolor": "white"}
    for x, y in curves:
        draw_line(axes, *_thin(x, y), label=label, **thin)
        label = "_"
    for run in runs:
        x = run.evaluations["steps"] if axis == "steps" else scale * run.evaluations["seconds"] / 3600
        draw_line(axes, x, run.evaluations["mean_return"], color=line_style["color"], **circles)


def _last_hour(run: Records) -> float:
    """Duration of a run in hours, as far as it is known."""
    seconds = run.rounds["seconds"]
    return float(np.nanmax(seconds)) / 3600 if np.isfinite(seconds).any() else 0.0


def _thin(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reduce a line to the points that a figure can show."""
    if len(x) <= POINTS:
        return x, y
    kept = np.linspace(0, len(x) - 1, POINTS).round().astype(int)
    return x[kept], y[kept]


def _references(axes: Axes, protocol: str, game: str) -> None:
    """Draw levels of random play, the human and published agents that lie near the range of the axes."""
    low, high = axes.get_ylim()
    margin = 0.35 * (high - low)
    levels = [(agent.name, agent.scores[game]) for agent in comparable_agents(protocol) if game in agent.scores]
    if game in REFERENCE:
        levels += [("random", REFERENCE[game][0]), ("human", REFERENCE[game][1])]
    at: dict[float, list[str]] = {}
    for name, level in levels:
        if low - margin <= level <= high + margin:
            near = next((other for other in at if abs(other - level) < 0.04 * (high - low)), level)
            at.setdefault(near, []).append(name)
    for level, names in at.items():
        axes.axhline(level, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            ", ".join(names),
            (1.0, level),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
            fontsize=7,
            color="#555555",
        )


# --- scores and aggregates


def score_chart(comparison: Comparison) -> Figure:
    """Human-normalized scores by game: a dot for each seed, a bar for the mean of an arm, open marks for published
    agents."""
    games = [game for game in comparison.games if game in REFERENCE]
    arms = comparison.arms
    figure, axes = _figure(5.2, 1.3 + 0.2 * len(arms) + len(games) * max(0.24, 0.14 * len(arms)))
    rows = {game: len(games) - 1 - i for i, game in enumerate(games)}
    spread = 0.7 / len(arms)
    dots: dict[str, Any] = {"markersize": 4, "alpha": 0.55}
    for i, arm in enumerate(arms):
        label = _wrapped(arm.label)
        for game in (game for game in arm.games if game in rows):
            scores = comparison.normalized(arm, game)
            if len(scores):
                y = rows[game] + ((len(arms) - 1) / 2 - i) * spread
                axes.plot(scores, np.full(len(scores), y), "o", color=color_of(i), **dots, label=label)
                axes.plot([scores.mean()] * 2, [y - 0.45 * spread, y + 0.45 * spread], color=color_of(i), linewidth=2)
                label = "_"
    for agent in comparable_agents(comparison.protocol):
        known = [game for game in games if game in agent.scores]
        axes.plot(
            np.array([human_normalized(game, agent.scores[game]) for game in known], np.float64),
            [rows[game] for game in known],
            linestyle="none",
            marker=MARKERS.get(agent.name, "v"),
            markersize=5,
            markerfacecolor="none",
            markeredgecolor="#444444",
            label=f"{agent.name}, published" if known else "_",
        )
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -0.15), max(high, 1.5))
    for at, text in ((0, "random"), (1, "human")):
        axes.axvline(at, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        place: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center"}
        axes.annotate(text, (at, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color="#555555", **place)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set_ylim(-0.6, len(games) - 0.4)
    axes.set_xlabel("human-normalized score (linear up to 1, logarithmic beyond)")
    figure.legend(loc="outside lower left", ncols=2, columnspacing=1.2, handletextpad=0.3)
    return figure
