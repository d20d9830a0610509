"""Picture of the model: steps/s against cores, with and without a GPU, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from ringside.report.plots import color_of, style
from shared.performance.throughput_model import Part, Prediction

PARTS: tuple[Part, ...] = ("learner", "emulation", "inference", "cores", "mailbox", "turns")
"""Parts with a color, in its order."""


def draw(path: Path, title: str, lines: Mapping[str, Mapping[int, Prediction]], measured: Mapping[int, float]) -> None:
    """Draw one line for each kind of machine, with points in the color of the part that limits there.

    Args:
        path: of the PNG.
        title: of the picture.
        lines: predictions by number of cores, by kind of machine.
        measured: steps/s of runs that were measured, by number of cores.

    Raises `OSError` if the file cannot be written.
    """
    with style():
        figure = Figure(figsize=(7.2, 3.8), layout="constrained")
        axis = figure.add_subplot(xscale="log", yscale="log", xlabel="cores", ylabel="steps/s", title=title)
        shown: set[Part] = set()
        for dash, (kind, line) in zip(("-", (0, (5, 2))), lines.items(), strict=False):
            axis.plot([*line], [each.steps_per_second for each in line.values()], color="#999999", ls=dash, label=kind)
            for cores, each in line.items():
                axis.plot(cores, each.steps_per_second, "o", color=color_of(PARTS.index(each.part)), ms=6)
                shown.add(each.part)
        for part in (part for part in PARTS if part in shown):
            axis.plot([], [], "o", color=color_of(PARTS.index(part)), label=f"limit: {part}")
        for cores, speed in measured.items():
            axis.plot(cores, speed, "x", color="#000000", ms=9, mew=2, label="measured")
        counts = sorted({cores for line in lines.values() for cores in line})
        axis.xaxis.set_major_locator(FixedLocator(counts))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.legend(loc="upper left")
        figure.savefig(path, dpi=150)
