"""A report: a self-contained HTML page, its figures as PNG files, and its numbers as JSON.

This module computes the contents; `templates/report.html` defines the layout and escapes all values.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

from ringside.recording.metric_names import metric_of
from ringside.recording.scores import REFERENCE, SOURCE, human_normalized
from ringside.recording.totals import mean_name
from ringside.report.aggregate import CONFIDENCE, REPLICATES, Estimate
from ringside.report.comparison import Arm, Comparison, differences
from ringside.report.figures import amount, duration, file_name, score, setting
from ringside.report.films import films
from ringside.report.notes import notes
from ringside.report.plots import (
    Axis,
    Picture,
    color_of,
    has_curve,
    learning_curve,
    metric_chart,
    metric_names,
    save,
    score_chart,
    style,
)
from ringside.report.published import FRAMES, Published, comparable_agents, published
from ringside.report.records import Records, newest, number
from ringside.report.rules import training_rules
from shared.config.digest import flat_of
from shared.config.sections import FRAME_SKIP
from shared.files.atomic import write_atomic
from shared.text import count, headline

PAGE = "report.html"
FIGURES = "report.json"

_RUN_ONLY = frozenset({"run_dir", "resume", "init_from", "plain", "seed", "game", "env"})
"""Settings that are shown for each run, or carry no information."""


class Cell(NamedTuple):
    """A value of a table below the name of its column."""

    column: str
    value: str
    small: str = ""
    """A remark below the value."""
    look: str = ""
    """Classes of the stylesheet."""


def write(comparison: Comparison, directory: Path, title: str, study: Sequence[Picture] = ()) -> Path:
    """Write the report into a directory and return the page's path.

    Args:
        directory: must exist.
        study: plots of a search for settings, drawn already.

    Raises:
        OSError: as the system says it.
    """
    parent = Path(os.path.commonpath([run.path.absolute().parent for run in comparison.runs]))
    with style():
        overview, curves = _overview(comparison, directory), _curves(comparison, directory)
        metrics = _metric_pictures(comparison, directory)
    agents, arms = _agents(comparison), comparison.arms
    page = (
        _environment()
        .get_template(PAGE)
        .render(
            title=title,
            recorded=_dates(comparison.runs),
            made=time.strftime("%Y-%m-%d %H:%M"),
            comparison=comparison,
            rules=training_rules(comparison.runs),
            notes=notes(comparison, FRAMES if agents else None),
            tiles=_tiles(comparison),
            arms=[(arm, color_of(i)) for i, arm in enumerate(arms)],
            aggregates=[_aggregate_row(comparison, arm) for arm in arms if comparison.aggregated_games],
            study=study,
            overview=overview,
            curves=curves,
            films=films(comparison),
            metrics=metrics,
            metric_meanings=_metric_meanings(comparison),
            agents=agents,
            references=any(game in REFERENCE for game in comparison.games),
            score_rows=[_score_row(comparison, game, arm) for game in comparison.games for arm in arms if arm.of(game)],
            run_rows=[_run_row(comparison, arm, run, parent) for arm, run in _ordered(comparison)],
            speed_rows=[_speed_row(run, parent) for _, run in _ordered(comparison)],
            limits=[(_path(run, parent), _limit(run).get("sentence")) for _, run in _ordered(comparison)],
            parent=parent,
            within=_within(comparison),
            settings=_common_settings(comparison.runs),
            machines=_machines(comparison.runs),
            sources={"human": SOURCE, "checked": published()[1]},
            confidence=round(100 * CONFIDENCE),
            replicates=REPLICATES,
        )
    )
    write_atomic(directory / PAGE, page.encode(errors="backslashreplace"))
    write_atomic(directory / FIGURES, json.dumps(report_figures(comparison), indent=1).encode() + b"\n")
    return directory / PAGE


def report_figures(comparison: Comparison) -> dict[str, Any]:
    """Numbers of a report as JSON values."""
    return {
        "protocol": comparison.protocol,
        "measure": comparison.measure.name,
        "judged_by": comparison.evaluation_rules,
        "aggregated_games": comparison.aggregated_games,
        "left_out": list(comparison.left_out),
        "configurations": [
            {
                "label": arm.label,
                "aggregates": {name: vars(each) for name, each in comparison.aggregates(arm).items()},
                "scores": {game: comparison.scores(arm, game).tolist() for game in arm.games},
                "runs": [str(run.path) for run in arm.runs],
            }
            for arm in comparison.arms
        ],
    }


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({"setting": setting, "headline": headline})
    return environment


def _metric_pictures(comparison: Comparison, directory: Path) -> dict[str, list[Picture]]:
    """Charts of the metrics of learning, by game; a game whose runs have none is absent."""
    return {
        game: [
            save(
                metric_chart(comparison, game, name),
                directory,
                f"metric-{file_name(game)}-{file_name(name)}",
                f"{headline(game)}: {metric_of(name).label} over steps",
            )
            for name in names
        ]
        for game in comparison.games
        if (names := metric_names(comparison, game))
    }


def _metric_meanings(comparison: Comparison) -> dict[str, str]:
    """Explanations of all metrics in the report, by label."""
    names = dict.fromkeys(name for game in comparison.games for name in metric_names(comparison, game))
    metrics = [metric_of(name) for name in names]
    return {metric.label: metric.meaning for metric in metrics if metric.meaning}


def _overview(comparison: Comparison, directory: Path) -> Picture | None:
    """Scores of all games together; None with one game, or without reference scores."""
    known = [game for arm in comparison.arms for game in arm.games if len(comparison.scores(arm, game))]
    if len(comparison.games) == 1 or REFERENCE.keys().isdisjoint(known):
        return None
    caption = f"Human-normalized scores by game ({comparison.measure.name}): dots are seeds, bars their means."
    return save(score_chart(comparison), directory, "scores", caption)


def _curves(comparison: Comparison, directory: Path) -> dict[str, list[Picture]]:
    """Learning curves of each game."""
    captions: dict[Axis, str] = {
        "steps": "over steps: training episodes (mean of up to the last 100) and evaluations (circles)",
        "hours": "over wall-clock time",
    }
    return {
        game: [
            save(
                learning_curve(comparison, game, axis),
                directory,
                f"curve-{file_name(game)}-{axis}",
                f"{headline(game)} {caption}",
            )
            for axis, caption in captions.items()
            if has_curve(comparison, game, axis)
        ]
        for game in comparison.games
    }


def _agents(comparison: Comparison) -> tuple[Published, ...]:
    """Published agents for the comparison; none if no run played a game."""
    return comparable_agents(comparison.protocol) if any(run.env is None for run in comparison.runs) else ()


def _tiles(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Headline figures: name, value, remark."""
    tiles = []
    for arm in comparison.arms[:4]:
        found = comparison.aggregates(arm).get("IQM")
        if found is not None and len(comparison.runs) > 1:
            name = "IQM, human-normalized" + (f" · {arm.label}" if len(comparison.arms) > 1 else "")
            tiles.append((name, score(found.value, 3), _interval(found)))
    runs = comparison.runs
    steps = max(run.steps for run in runs)
    speeds = [speed for run in runs if math.isfinite(speed := _speed(run))]
    seeds = {run.seed for run in runs}
    tiles.append(("Runs", str(len(runs)), f"{count(len(comparison.games), 'game')}, {count(len(seeds), 'seed')}"))
    games_alone = all(run.env is None for run in runs)
    tiles.append(("Steps of a run", amount(steps), f"{amount(steps * FRAME_SKIP)} frames" if games_alone else ""))
    if speeds:
        middle = float(np.median(speeds))
        frames = f"{amount(middle * FRAME_SKIP)} frames per second" if games_alone else ""
        tiles.append(("Steps per second", amount(middle), frames))
    return tiles


def _dates(runs: Sequence[Records]) -> str:
    """The first and the last day of the newest records of runs."""
    days = [time.strftime("%Y-%m-%d", time.localtime(run.newest_at)) for run in runs]
    return " to ".join(dict.fromkeys((min(days), max(days))))


def _ordered(comparison: Comparison) -> list[tuple[Arm, Records]]:
    """All runs with their arms, by game and seed."""
    return [(arm, run) for arm in comparison.arms for game in arm.games for run in arm.of(game)]


def _of_arm(comparison: Comparison, arm: Arm) -> list[Cell]:
    """The cell that names the arm, if there are several."""
    return [Cell("configuration", arm.label, look="left list")] if len(comparison.arms) > 1 else []


def _aggregate_row(comparison: Comparison, arm: Arm) -> list[Cell]:
    """Row of the table of aggregates."""
    return [
        Cell("configuration", arm.label),
        *(Cell(name, score(each.value, 3), _interval(each)) for name, each in comparison.aggregates(arm).items()),
    ]


def _interval(found: Estimate) -> str:
    return "one seed: no interval" if found.low is None else f"{score(found.low, 3)} to {score(found.high, 3)}"


def _score_row(comparison: Comparison, game: str, arm: Arm) -> list[Cell]:
    """Row of the table of scores; references are shown if some game has them."""
    scores, runs = comparison.scores(arm, game), arm.of(game)
    best = [value for value in map(_best_evaluation, runs) if math.isfinite(value)]
    mean = float(scores.mean()) if len(scores) else None
    cells = [
        Cell("game", game),
        *_of_arm(comparison, arm),
        Cell("seeds", str(len(runs))),
        Cell("mean", score(mean), _normalized(game, mean), look="ours"),
        Cell("sd", score(scores.std(ddof=1) if len(scores) > 1 else None)),
        Cell("each seed", ", ".join(map(score, scores)), look="list"),
        Cell("best evaluation", score(np.mean(best) if best else None)),
    ]
    if any(each in REFERENCE for each in comparison.games):
        reference = REFERENCE.get(game, (None, None))
        names = ("random", "human")
        cells += [Cell(name, score(value), look="group") for name, value in zip(names, reference, strict=True)]
    for agent in _agents(comparison):
        value = agent.scores.get(game)
        cells.append(Cell(agent.name, score(value), _normalized(game, value), look="group"))
    return cells


def _normalized(game: str, value: float | None) -> str:
    """A score, human-normalized; empty if it is unknown, or the game has no reference scores."""
    return score(human_normalized(game, value), 3) if value is not None and game in REFERENCE else ""


def _best_evaluation(run: Records) -> float:
    """Mean return of the best weights, in an evaluation by the protocol, else beside training; NaN: none."""
    if "best" in run.by_protocol:
        return float(run.by_protocol["best"]["mean"])
    values = run.evaluations["mean_return"]
    return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan


def _path(run: Records, parent: Path) -> str:
    return str(run.path.absolute().relative_to(parent))


def _run_row(comparison: Comparison, arm: Arm, run: Records, parent: Path) -> list[Cell]:
    """Row of the table of runs; texts come from the run and are untrusted."""
    summary, episodes = run.summary or {}, len(run.episodes["steps"])
    exact = summary.get("exact")
    training = score(newest(run.rounds["mean_return_100"]))
    return [
        Cell("run", _path(run, parent)),
        *_of_arm(comparison, arm),
        Cell("game", run.game, look="left"),
        Cell("seed", str(run.seed)),
        Cell("state", run.state, look="left"),
        Cell("steps", amount(run.steps)),
        Cell("episodes", amount(episodes)),
        Cell("training", training, mean_name(episodes) if episodes else ""),
        Cell("last evaluation", score(newest(run.evaluations["mean_return"]))),
        *(_judged(run, kind, name) for kind, name in (("final", "final evaluation"), ("best", "best weights"))),
        Cell("exact", "–" if exact is None else "yes" if exact else "no"),
        Cell("weights", str(summary.get("weights_sha256") or "–")[:12], look="code"),
    ]


def _judged(run: Records, kind: str, name: str) -> Cell:
    """Cell of an evaluation by the protocol."""
    if kind not in run.by_protocol:
        return Cell(name, "–")
    found = run.by_protocol[kind]
    return Cell(name, f"{score(found['mean'])} ± {score(found['sd'])}", count(int(found["episodes"]), "episode"))


def _speed_row(run: Records, parent: Path) -> list[Cell]:
    """Row of the table of throughput; texts come from the run and are untrusted."""
    summary, speed = run.summary or {}, _speed(run)
    reached, restarts = number(_limit(run).get("share_of_limit")), summary.get("restarts")
    return [
        Cell("run", _path(run, parent)),
        Cell("steps/s", score(speed, 0), look="ours"),
        Cell("frames/s", score(None if run.env else speed * FRAME_SKIP, 0)),
        Cell("updates/s", score(newest(run.rounds.get("updates_per_second", np.zeros(0))))),
        Cell("samples a step", score(summary.get("samples_per_step"))),
        Cell("time", duration(newest(run.rounds["seconds"]))),
        Cell("limit", str(_limit(run).get("name") or "–"), look="left"),
        Cell("reached of it", f"{score(100 * reached, 0)}%" if math.isfinite(reached) else "–"),
        Cell("restarts", "–" if restarts is None else str(restarts)),
    ]


def _limit(run: Records) -> dict[str, Any]:
    """The limit of a run; empty if it is not known, as of a session without a record."""
    limit = _part(run.summary or {}, "limit")
    return {} if limit.get("name") == "starting" else limit


def _speed(run: Records) -> float:
    """Steps per second from the first to the last complete round; NaN: not known."""
    if run.summary is not None:
        speed = number(_part(run.summary, "limit").get("steps_per_second"))
        if math.isfinite(speed):
            return speed
    steps, seconds = run.rounds["steps"], run.rounds["seconds"]
    known = np.isfinite(seconds)
    if known.sum() < 2:
        return math.nan
    passed = seconds[known][-1] - seconds[known][0]
    return float((steps[known][-1] - steps[known][0]) / passed) if passed > 0 else math.nan


def _within(comparison: Comparison) -> list[list[Cell]]:
    """Table of the settings that differ among the runs of an arm without making another configuration."""
    return [
        [
            Cell("setting", name, look="code"),
            *_of_arm(comparison, arm),
            Cell("values", ", ".join(dict.fromkeys(map(setting, values))), look="left list"),
        ]
        for arm in comparison.arms
        for name, values in differences(arm.runs, _RUN_ONLY).items()
    ]


def _common_settings(runs: Sequence[Records]) -> dict[str, dict[str, Any]]:
    """Settings by section that all runs share, and that have an effect with their method."""
    shared = runs[0].settings.keys() - differences(runs).keys() - _RUN_ONLY
    found = {section: flat_of({section: values}) for section, values in runs[0].config.items()}
    return {
        section: kept
        for section, flat in found.items()
        if (kept := {name: value for name, value in flat.items() if name in shared})
    }


def _machines(runs: Sequence[Records]) -> list[str]:
    """Machines of the runs, one line for each."""
    found: dict[str, None] = {}
    for run in runs:
        machine = _part(run.summary or {}, "machine")
        libraries = _part(machine, "libraries")
        if machine:
            gpus = machine.get("gpus")
            parts = [
                f"{machine.get('cpu')}, {machine.get('usable_cores')} cores",
                ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "no GPU",
                *(f"{name} {libraries[name]}" for name in ("torch", "ale-py") if name in libraries),
            ]
            found["; ".join(parts)] = None
    return list(found)


def _part(values: dict[str, Any], name: str) -> dict[str, Any]:
    """A nested JSON object; empty if the value is no object."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}
