"""The task `report`: one page about one or more runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ringside.options.option import Positional
from ringside.report.comparison import compare
from ringside.report.records import Records, RecordsError, load
from ringside.tasks.arguments import parse
from shared.config.settings import Play
from shared.config.trust import compare_env, require_plugin
from shared.errors import ConfigError
from shared.process.ownership import REPORT, require_writable_run
from shared.text import PROGRAM, headline, printable


@dataclass(frozen=True)
class Report:
    """The options of `report`."""

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


OPTIONS = Report


def main(arguments: Sequence[str]) -> int:
    """Write a report of runs: an HTML page, its pictures as PNG, its figures as JSON."""
    options = parse(
        Report,
        arguments,
        f"{PROGRAM} report",
        "Write one page about one or more runs: learning curves, scores beside published ones, throughput, settings.",
    )
    if not options.runs:
        raise ConfigError(f"Name at least one run directory: {PROGRAM} report runs/*")
    missing = [str(path) for path in options.runs if not os.path.exists(path)]  # never raises
    if missing:
        raise ConfigError(f"There is no {' and no '.join(missing)}: name directories of runs.")
    if options.out is None and len(options.runs) == 1:
        require_writable_run(options.runs[0], "--out")
    out = options.out or (options.runs[0] / REPORT if len(options.runs) == 1 else Path(REPORT))
    page, left_out = write_report(options.runs, out, options.title, options.env, options.plugin)
    for sentence in left_out:
        print(printable(f"{PROGRAM}: {sentence}"), file=sys.stderr)
    print(printable(f"The report is in {page}."))
    return 0


def write_report(
    runs: Sequence[Path], out: Path, title: str | None = None, env: str | None = None, plugin: str | None = None
) -> tuple[Path, tuple[str, ...]]:
    """Write a report into a directory; unreadable runs are left out if at least one is readable.

    Args:
        runs: their directories.
        out: the directory of the report.
        title: the headline; None: the games.
        env: what the user says that all runs were trained on; None: not compared.
        plugin: what the user says that all runs were trained with; None: not compared.

    Returns:
        Path of the page, and sentences about omitted runs.

    Raises:
        ConfigError: no run can be read, one is of another env, their scores cannot be compared, or the report cannot
            be drawn or written.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError("A report needs the package matplotlib, which is not installed: say make install.")
    from ringside.report import report_page

    found: list[Records] = []
    refused = []
    for path in runs:
        try:
            found.append(load(path))
        except RecordsError as error:
            refused.append(str(error))
        except OSError as error:
            refused.append(f"{path} cannot be read: {error.strerror}.")
    for records in found:
        compare_env(Play(game=records.game, env=records.env), env, what=f"The run {records.path}")
        if plugin is not None:
            require_plugin(records.settings.get("plugin"), plugin, what=f"The run {records.path}")
    try:
        comparison = compare(found, refused)
    except RecordsError as error:
        raise ConfigError(str(error)) from error
    try:
        page = report_page.write(comparison, out, title or f"Ringside on {_named(comparison.games)}")
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}.") from error
    return page, comparison.left_out


def _named(games: Sequence[str]) -> str:
    """Text of a list in a headline."""
    return ", ".join(map(headline, games)) if len(games) <= 5 else f"{len(games)} games"
