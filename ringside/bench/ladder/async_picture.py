"""The picture of asynchronous gradients: speed by number of workers, and returns over wall-clock time.

    python launch.py bench ladder --async --json ladder_async.json
    python -m ringside.bench.ladder.async_picture ladder_async.json async=runs/async a3c=runs/a3c --out async.png

The left half shows the rungs of the report: a line for each schedule of workers, and a level for each form on batches.
The right half shows the mean return of the last hundred training episodes of the runs, and their evaluations. A run
that has the name of a schedule or of a form has its color.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ringside.recording.totals import MEAN_OVER
from ringside.report.curve import LABELS, Curve, curve_in, draw
from ringside.report.plots import color_of, style
from shared.files.strict_json import read_json

FORMS = ("async", "ordered", "a3c", "impala")
"""Names with a color of their own, in its order; the first two have a rung for each number of workers."""
_RUNG = re.compile(r"(async|ordered)-(\d+)")


class Speed(NamedTuple):
    """Speed of a rung."""

    workers: int
    """0: a form on batches."""
    median: float
    least: float
    most: float


def speeds_in(report: Mapping[str, Any]) -> dict[str, list[Speed]]:
    """Speeds of a report of `bench ladder --async`, by form.

    Raises:
        ValueError: the report holds none. The message is a sentence.
    """
    found: dict[str, list[Speed]] = {}
    for row in report.get("rows", ()):
        rung = _RUNG.fullmatch(row["name"])
        if row["unit"] != "steps/s" or not (rung or row["name"] in FORMS):
            continue
        form, workers = (rung[1], int(rung[2])) if rung else (row["name"], 0)
        found.setdefault(form, []).append(Speed(workers, row["median"], min(row["values"]), max(row["values"])))
    if not found:
        raise ValueError("the report has no rung of bench ladder --async; write one with --json")
    return {form: sorted(found[form]) for form in FORMS if form in found}


def draw_speeds(axis: Axes, speeds: Mapping[str, Sequence[Speed]]) -> None:
    """Draw a line with the spread of its repeats for each schedule, and a level for each form on batches."""
    for form, rungs in speeds.items():
        color = color_of(FORMS.index(form))
        if rungs[0].workers == 0:
            axis.axhline(rungs[0].median, color=color, ls="--", label=f"{form}, on batches")
            continue
        workers, medians, least, most = zip(*rungs, strict=True)
        axis.plot(workers, medians, "o-", color=color, label=form)
        axis.vlines(workers, least, most, color=color, lw=1)
    axis.set_xscale("log", base=2)
    counts = sorted({rung.workers for rungs in speeds.values() for rung in rungs} - {0})
    axis.xaxis.set_major_locator(FixedLocator(counts))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("workers")
    axis.set_ylabel("steps/s")
    axis.legend(loc="lower right")


def draw_returns(axis: Axes, curves: Sequence[Curve]) -> None:
    """Draw the curves over minutes."""
    others = count(len(FORMS))
    for curve in curves:
        place = FORMS.index(curve.name) if curve.name in FORMS else next(others)
        draw(axis, curve, color_of(place), 1, alone=False)
    axis.set_xlabel(LABELS[1])
    axis.set_ylabel(f"mean of {MEAN_OVER}; circles: evaluations")
    axis.legend(loc="upper left")


def picture(report: Mapping[str, Any], curves: Sequence[Curve]) -> Figure:
    """Both halves; call it inside `style`. Raises `ValueError` if the report has no rungs."""
    speeds = speeds_in(report)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_speeds(left, speeds)
    draw_returns(right, curves)
    right.set_title("; ".join(dict.fromkeys(curve.run.game for curve in curves)))
    return figure


def main() -> None:
    """Draw one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JSON of bench ladder --async")
    parser.add_argument("runs", nargs="+", metavar="RUN or NAME=RUN")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        curves = [curve_in(word) for word in options.runs]
        with style():
            picture(read_json(options.report), curves).savefig(options.out, dpi=110)
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
