"""Reading what a run wrote down about itself: one reader for reports and for pages that look on.

A run may still be going on, or have died: what a writer has not finished is left out. What is read is data of somebody
else: sizes are compared before memory is asked for, kinds are checked, and nothing is executed.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ringside.recording.metrics import MetricsError, read_metrics
from shared.config.settings import CONFIG_FILE, JUDGED, METRICS_FILE, SUMMARY_FILE, flat_of
from shared.errors import FileError
from shared.files.atomic import read_json
from shared.text import PLAIN_NAME

_JSON_LIMIT = 8 << 20

Column = NDArray[np.float64]
Columns = Mapping[str, Column]


class RecordsError(ValueError):
    """A directory whose records cannot be used. The message is a sentence for the user: what is wrong, what to do."""


@dataclass(frozen=True)
class Records:
    """Records of one run.

    The columns hold float64, NaN where a record had nothing; a record of another version may have other columns.
    """

    path: Path
    config: dict[str, dict[str, Any]]
    """Sections of settings, as in `Config.to_json`, perhaps of another version."""
    game: str
    """Or the name of another environment."""
    protocol: str
    seed: int
    rounds: Columns
    """By name, one value a round: `steps`, `seconds`, `mean_return_100`, `loss`, ... in the order of rounds."""
    episodes: Columns
    """`steps`, `return`, `length`: one value an episode of training, in the order in which they ended."""
    evaluations: Columns
    """One value an evaluation beside training, by steps: `steps`, `mean_return`, `episodes`, ..."""
    summary: dict[str, Any] | None
    """`summary.json`; None: the run goes on, or it died."""
    judged: dict[str, dict[str, Any]]
    """By the names of `JUDGED`, where they are: `mean`, `sd`, `median`, `best` and `episodes` are numbers."""

    @property
    def steps(self) -> int:
        """Played in whole rounds."""
        return int(self.rounds["steps"][-1])

    @property
    def env(self) -> str | None:
        """The environment, where it was no game."""
        return self.game if self.config["play"].get("env") else None

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by their flat names."""
        return flat_of(self.config)

    @property
    def state(self) -> str:
        """`finished`, `stopped` (asked to, or by a fault) or `no end` (it goes on, or it died)."""
        if self.summary is None:
            return "no end"
        return "finished" if self.summary.get("finished") is True else "stopped"


def load(run_dir: Path) -> Records:
    """Read a run directory.

    Raises:
        RecordsError: it is none, of another format, damaged, or of a run that has not finished a round.
    """
    config = _config(run_dir)
    play, run = config.get("play", {}), config.get("run", {})
    game, protocol, seed = play.get("env") or play.get("game"), play.get("protocol"), run.get("seed")
    if not _is_name(game) or not _is_name(protocol) or type(seed) is not int:
        raise RecordsError(
            f"{run_dir} was not written by this version of Ringside: its {CONFIG_FILE} does not say game, protocol and "
            "seed. Report it with the version that wrote it."
        )
    rounds, episodes, evaluations = _metrics(run_dir)
    if not len(rounds["steps"]):
        raise RecordsError(
            f"{run_dir} holds no whole round yet: the run never began to play, or has just begun. Wait for its first "
            "round, or leave it out."
        )
    return Records(
        path=run_dir,
        config=config,
        game=game,
        protocol=protocol,
        seed=seed,
        rounds=rounds,
        episodes=episodes,
        evaluations=evaluations,
        summary=_object(run_dir / SUMMARY_FILE) if os.path.lexists(run_dir / SUMMARY_FILE) else None,
        judged={kind: _judgement(run_dir / name) for kind, name in JUDGED.items() if os.path.lexists(run_dir / name)},
    )


def _is_name(value: object) -> TypeGuard[str]:
    """True if it may be the name of an env, a game or a protocol, which is printed."""
    return isinstance(value, str) and PLAIN_NAME.fullmatch(value) is not None


def newest(column: Column) -> float:
    """The last number of a column, or NaN."""
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else math.nan


def number(value: object) -> float:
    """A number from JSON as a float; NaN for everything else, true and false included."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _config(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The sections of settings."""
    if not os.path.exists(run_dir):  # which raises for no path
        raise RecordsError(f"There is no run {run_dir}.")
    if not os.path.isdir(run_dir):
        raise RecordsError(f"{run_dir} is a file; name the run's directory.")
    if not os.path.lexists(run_dir / CONFIG_FILE):
        inside = sum(1 for entry in run_dir.iterdir() if os.path.exists(entry / CONFIG_FILE))
        hint = f"it holds {inside} of them: say {run_dir}/*." if inside else f"it has no {CONFIG_FILE}."
        raise RecordsError(f"{run_dir} is not a run directory; {hint}")
    config = _object(run_dir / CONFIG_FILE)
    if not all(isinstance(values, dict) for values in config.values()):
        raise RecordsError(f"{run_dir / CONFIG_FILE} is damaged: a section of it is not an object.")
    return config


def _metrics(run_dir: Path) -> tuple[Columns, Columns, Columns]:
    """Rounds, episodes and evaluations of `metrics.jsonl`; empty columns where there is no file."""
    path = run_dir / METRICS_FILE
    kinds: dict[str, list[dict[str, Any]]] = {"round": [], "episode": [], "evaluation": []}
    if os.path.lexists(path):
        try:
            for record in read_metrics(path):
                kinds[record["kind"]].append(record)
        except (MetricsError, FileError) as error:
            raise RecordsError(str(error)) from error
    evaluations = sorted(kinds["evaluation"], key=lambda record: number(record.get("steps")))
    return (
        _columns(kinds["round"], "steps", "seconds", "mean_return_100"),
        _columns(kinds["episode"], "steps", "return", "length"),
        _columns(evaluations, "steps", "mean_return", "episodes"),
    )


def _columns(records: list[dict[str, Any]], *always: str) -> Columns:
    """One column for each name under which some record has a number, and for those in `always`."""
    columns: dict[str, Column] = defaultdict(lambda: np.full(len(records), np.nan))
    for name in always:
        columns[name]
    for i, record in enumerate(records):
        for name, value in record.items():
            if math.isfinite(number(value)):
                columns[name][i] = value
    return dict(columns)


def _judgement(path: Path) -> dict[str, Any]:
    """Result that `launch.py eval --json` wrote."""
    found = _object(path)
    for name in ("mean", "sd", "median", "best", "episodes"):
        if not math.isfinite(number(found.get(name))):
            raise RecordsError(f"{path} is damaged: {name} is {found.get(name)!r:.40}. Remove it and evaluate again.")
    return found


def _object(path: Path) -> dict[str, Any]:
    """A JSON object of moderate size."""
    try:
        return read_json(path, _JSON_LIMIT)
    except FileError as error:
        raise RecordsError(f"{error} It is in {path.parent}: leave the run out.") from error
