"""Writing of a report from run directories: which runs can be read, and the page about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringside.report.comparison import compare
from ringside.report.records import Records, RecordsError, load
from shared.config.sections import Play
from shared.config.trust import compare_env, require_plugin
from shared.errors import ConfigError
from shared.files.result_files import make_result_directory
from shared.text import headline

if TYPE_CHECKING:
    from ringside.report.plots import Picture


def write_report(
    runs: Sequence[Path],
    out: Path,
    title: str | None = None,
    env: str | None = None,
    plugin: str | None = None,
    study: Sequence[Picture] = (),
) -> tuple[Path, tuple[str, ...]]:
    """Write a report into a directory; unreadable runs are left out if at least one is readable.

    Args:
        runs: their directories.
        out: the directory of the report.
        title: the headline; None: the games.
        env: what the user says that all runs were trained on; None: not compared.
        plugin: what the user says that all runs were trained with; None: not compared.
        study: plots of the search for settings to which the runs belong.

    Returns:
        Path of the page, and sentences about omitted runs.

    Raises:
        ConfigError: no run can be read, one is of another env, their scores cannot be compared, or the report cannot
            be written.
    """
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
    make_result_directory("--out", out)
    from ringside.report import report_page  # it loads matplotlib, which takes half a second

    games = ", ".join(map(headline, comparison.games[:5])) + (" and more" if len(comparison.games) > 5 else "")
    try:
        page = report_page.write(comparison, out, title or f"Ringside on {games}", study)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}.") from error
    return page, comparison.left_out
