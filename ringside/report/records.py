"""Reader of a run's records, for reports.

A run may still be running, or have crashed: the reader skips an unfinished end. The data is untrusted: sizes are
checked before memory is allocated, types are checked, and nothing is executed.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.records.metrics import read_metrics
from shared.config.method_declaration import method_declaration, method_names
from shared.config.presets import nearest_preset
from shared.config.settings import Config, flat_of, unused_settings
from shared.errors import ConfigError, FileError
from shared.files.run_file_names import CONFIG_FILE, EVALUATION_FILES, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_json
from shared.text import PLAIN_NAME, refused

_JSON_LIMIT = 8 << 20
CELL_FILE = "cell.json"
"""File of a run directory in which a suite notes arguments, CPU and libraries, before it begins the run."""

Column = NDArray[np.float64]
Columns = Mapping[str, Column]


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one run.

    Columns hold float64, NaN where a record has no value; records of another version may have other columns.
    """

    path: Path
    config: dict[str, dict[str, Any]]
    """Sections of settings, as in `Config.to_json`, perhaps of another version."""
    game: str
    """Game, or the name of another environment."""
    protocol: str
    seed: int
    rounds: Columns
    """Columns with one value per round, in order of rounds: `steps`, `seconds`, `mean_return_100`, metrics, ..."""
    episodes: Columns
    """Columns `steps`, `return`, `length` with one value per training episode, in order of their ends."""
    evaluations: Columns
    """Columns `steps`, `seconds`, `mean_return`, `episodes`, ... with one value per evaluation beside training, in
    order of steps."""
    summary: dict[str, Any] | None
    """`summary.json`; None: the run is running, or crashed."""
    newest_at: float
    """Moment of the newest record, in seconds since 1970."""
    by_protocol: dict[str, dict[str, Any]]
    """Evaluations by the protocol, with the keys of `EVALUATION_FILES`; `mean`, `sd`, `episodes`, `eval_epsilon` and
    `eval_max_frames` are numbers."""

    @property
    def steps(self) -> int:
        """Steps of whole rounds."""
        return int(self.rounds["steps"][-1])

    @property
    def env(self) -> str | None:
        """Name of the environment if it is no game; else None."""
        return self.game if self.config["play"].get("env") else None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings that have an effect with the method, by flat names."""
        flat = flat_of(self.config)
        method = flat.get("method")
        unused = unused_settings(method_declaration(method)) if method in method_names() else {}
        return {name: value for name, value in flat.items() if name not in unused}

    @cached_property
    def preset(self) -> tuple[str, list[str]]:
        """Nearest preset and the options that differ from it; of an unknown configuration the method alone."""
        try:
            return nearest_preset(Config.from_json(self.config))
        except ConfigError:
            return str(self.settings.get("method")), []

    @property
    def state(self) -> str:
        """`finished`, `stopped` (by request or error) or `no end` (running, or crashed)."""
        if self.summary is None:
            return "no end"
        return "finished" if self.summary.get("finished") is True else "stopped"


def load(run_dir: Path) -> Records:
    """Read a run directory.

    Raises:
        ConfigError: it is no run directory, of another format, damaged, or its run has not finished a round.
        OSError: as the system says it.
    """
    with refused(f"{run_dir} has a file that cannot be read, so leave the run out:", FileError):
        # The summary first: of a run that ends meanwhile all records are read, and none of its end.
        summary = read_json(run_dir / SUMMARY_FILE, _JSON_LIMIT) if os.path.lexists(run_dir / SUMMARY_FILE) else None
        config, (rounds, episodes, evaluations) = _config(run_dir), _metrics(run_dir)
        by_protocol = {
            kind: _evaluation_in(run_dir / name)
            for kind, name in EVALUATION_FILES.items()
            if os.path.lexists(run_dir / name)
        }
    play, run = config.get("play", {}), config.get("run", {})
    game, protocol, seed = play.get("env") or play.get("game"), play.get("protocol"), run.get("seed")
    names = [name for name in (game, protocol) if isinstance(name, str) and PLAIN_NAME.fullmatch(name)]
    if len(names) < 2 or type(seed) is not int:
        raise ConfigError(
            f"{run_dir} was not written by this version of Ringside: its {CONFIG_FILE} lacks game, protocol or seed. "
            "Make the report with the version that wrote it."
        )
    if not len(rounds["steps"]):
        raise ConfigError(
            f"{run_dir} has no complete round yet: the run never started, or has just started. Wait for its first "
            "round, or leave it out."
        )
    return Records(
        path=run_dir,
        config=config,
        game=names[0],
        protocol=names[1],
        seed=seed,
        rounds=rounds,
        episodes=episodes,
        evaluations=evaluations,
        summary=summary,
        newest_at=os.path.getmtime(run_dir / METRICS_FILE),
        by_protocol=by_protocol,
    )


def newest(column: Column) -> float:
    """Last number of a column, or NaN."""
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else math.nan


def number(value: object) -> float:
    """A number from JSON as a float; NaN for any other value, including booleans."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def part(values: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """A nested JSON object; empty if the value is no object."""
    found = (values or {}).get(name)
    return found if isinstance(found, dict) else {}


def _config(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The sections of settings."""
    if not stat.S_ISDIR(os.stat(run_dir).st_mode):
        raise ConfigError(f"{run_dir} is a file; name the run's directory.")
    if not os.path.lexists(run_dir / CONFIG_FILE):
        inside = sum(os.path.exists(entry / CONFIG_FILE) for entry in run_dir.iterdir())
        hint = f"it contains {inside} of them: pass {run_dir}/*." if inside else f"it has no {CONFIG_FILE}."
        raise ConfigError(f"{run_dir} is not a run directory; {hint}")
    config = read_json(run_dir / CONFIG_FILE, _JSON_LIMIT)
    if not all(isinstance(values, dict) for values in config.values()):
        raise ConfigError(f"{run_dir / CONFIG_FILE} is damaged: a section of it is not an object.")
    return config


def _metrics(run_dir: Path) -> tuple[Columns, Columns, Columns]:
    """Rounds, episodes and evaluations of `metrics.jsonl`; empty columns without a file."""
    path = run_dir / METRICS_FILE
    kinds: dict[str, list[dict[str, Any]]] = {"round": [], "episode": [], "evaluation": []}
    if os.path.lexists(path):
        for record in read_metrics(path):
            kinds[record["kind"]].append(record)
    evaluations = sorted(kinds["evaluation"], key=lambda record: number(record.get("steps")))
    return (
        _columns(kinds["round"], "steps", "seconds", "mean_return_100"),
        _columns(kinds["episode"], "steps", "return", "length"),
        _columns(evaluations, "steps", "seconds", "mean_return", "episodes"),
    )


def _columns(records: list[dict[str, Any]], *always: str) -> Columns:
    """A column for each name under which a record has a number, and for those in `always`."""
    values = [{name: number(value) for name, value in record.items()} for record in records]
    names = dict.fromkeys([*always, *(name for row in values for name in row if math.isfinite(row[name]))])
    return {name: np.array([row.get(name, math.nan) for row in values], np.float64) for name in names}


def _evaluation_in(path: Path) -> dict[str, Any]:
    """Result of `launch.py eval --json`."""
    found = read_json(path, _JSON_LIMIT)
    for name in ("mean", "sd", "episodes", "eval_epsilon", "eval_max_frames"):
        if not math.isfinite(number(found.get(name))):
            raise ConfigError(f"{path} is damaged: {name} is {found.get(name)!r:.40}. Remove it and evaluate again.")
    return found
