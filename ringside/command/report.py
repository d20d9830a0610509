"""The task `report`: one page about one or more runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.command.arguments import parse
from ringside.command.option import Positional
from ringside.report.report_page import write_report
from shared.errors import ConfigError
from shared.files.plain_files import exists
from shared.process.ownership import REPORT, require_writable_run
from shared.text import PROGRAM, printable


@dataclass(frozen=True)
class Options:
    """Write one page about one or more runs: learning curves, scores beside published ones, throughput, settings."""

    runs: Positional[tuple[Path, ...]] = ()
    """Run directories: seeds, games or configurations to set beside one another."""
    out: Path | None = None
    """Directory of the report; default: report, inside the run or, of several runs, here."""
    env: str | None = None
    """Refuse runs of another env than this one; a report imports none, so no run requires it."""
    plugin: str | None = None
    """Refuse runs of another plug-in than this one; a report imports none, so no run requires it."""
    title: str | None = None
    """Headline; default: the games."""


def main(arguments: Sequence[str]) -> int:
    """Write a report of runs: an HTML page, its pictures as PNG, its figures as JSON."""
    options = parse(Options, arguments, "report")
    if not options.runs:
        raise ConfigError(f"Name at least one run directory: {PROGRAM} report runs/*")
    if missing := [str(path) for path in options.runs if not exists(path)]:
        raise ConfigError(f"There is no {' and no '.join(missing)}: name directories of runs.")
    out = options.out or Path(REPORT)
    if options.out is None and len(options.runs) == 1 and os.path.isdir(options.runs[0]):
        require_writable_run(options.runs[0], "--out")
        out = options.runs[0] / REPORT
    page, left_out = write_report(options.runs, out, options.title, options.env, options.plugin)
    for sentence in left_out:
        print(printable(f"{PROGRAM}: {sentence}"), file=sys.stderr)
    print(printable(f"The report is in {page}."))
    return 0
