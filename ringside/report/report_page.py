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
from typing import Any

import jinja2
import numpy as np

from ringside.recording.metric_names import metric_of
from ringside.recording.scores import REFERENCE, SOURCE, human_normalized
from ringside.report.aggregate import CONFIDENCE, REPLICATES
from ringside.report.comparison import IGNORED_SETTINGS, Arm, Comparison, differences
from ringside.report.figures import amount, duration, file_name, score, setting
from ringside.report.films import films
from ringside.report.notes import notes
from ringside.report.plots import (
    Axis,
    Picture,
    aggregate_chart,
    color_of,
    has_curve,
    learning_curve,
    metric_charts,
    metric_names,
    save,
    score_chart,
    style,
)
from ringside.report.published import FRAMES, Published, comparable_agents, published
from ringside.report.records import Records, newest, number
from ringside.report.rules import training_rules
from shared.config.sections import FRAME_SKIP
from shared.files.atomic import write_atomic
from shared.text import count, headline

PAGE = "report.html"
FIGURES = "report.json"

_RUN_ONLY = frozenset({"run_dir", "resume", "init_from", "plain", "seed", "game", "env"})
"""Settings that are shown for each run, or carry no information."""


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
        overview, curves = _pictures(comparison, directory)
        metrics = _metric_pictures(comparison, directory)
    agents = _agents(comparison)
    page = (
        _environment()
        .get_template(PAGE)
        .render(
            title=title,
            made=time.strftime("%Y-%m-%d %H:%M"),
            comparison=comparison,
            rules=training_rules(comparison.runs),
            notes=notes(comparison, FRAMES if agents else None),
            tiles=_tiles(comparison),
            arms=[(arm, color_of(i)) for i, arm in enumerate(comparison.arms)],
            aggregates=[(arm.label, comparison.aggregates(arm)) for arm in comparison.arms],
            aggregated_games=comparison.aggregated_games,
            study=study,
            overview=overview,
            curves=curves,
            films=films(comparison),
            metrics=metrics,
            metric_meanings=_metric_meanings(comparison),
            agents=agents,
            score_rows=[
                _score_row(comparison, game, arm)
                for game in comparison.games
                for arm in comparison.arms
                if arm.of(game)
            ],
            run_rows=[
                _run_row(arm, run, parent) for arm in comparison.arms for game in arm.games for run in arm.of(game)
            ],
            parent=parent,
            between=differences([arm.runs[0] for arm in comparison.arms], IGNORED_SETTINGS)
            if len(comparison.arms) > 1
            else {},
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
    environment.filters.update(
        {
            "score": score,
            "amount": amount,
            "duration": duration,
            "setting": setting,
            "count": count,
            "headline": headline,
        }
    )
    return environment


def _metric_pictures(comparison: Comparison, directory: Path) -> dict[str, Picture]:
    """Charts of the metrics of learning, by game; a game whose runs have none is absent."""
    return {
        game: save(
            metric_charts(comparison, game),
            directory,
            f"metrics-{file_name(game)}",
            f"{headline(game)}: metrics over steps",
        )
        for game in comparison.games
        if metric_names(comparison, game)
    }


def _metric_meanings(comparison: Comparison) -> dict[str, str]:
    """Explanations of all metrics in the report, by label."""
    names = dict.fromkeys(name for game in comparison.games for name in metric_names(comparison, game))
    metrics = [metric_of(name) for name in names]
    return {metric.label: metric.meaning for metric in metrics if metric.meaning}


def _pictures(comparison: Comparison, directory: Path) -> tuple[list[Picture], dict[str, list[Picture]]]:
    """Figures of all games together, and learning curves of each game."""
    overview = []
    if len(comparison.runs) > 1 and comparison.aggregated_games:
        caption = (
            f"Aggregates of human-normalized scores over {count(len(comparison.aggregated_games), 'game')}: the line "
            f"is the figure, the bar its {round(100 * CONFIDENCE)}% interval."
        )
        overview.append(save(aggregate_chart(comparison), directory, "aggregates", caption))
    if any(len(comparison.scores(arm, game)) for arm in comparison.arms for game in arm.games if game in REFERENCE):
        caption = f"Human-normalized scores by game ({comparison.measure.name}): dots are seeds, bars their means."
        overview.append(save(score_chart(comparison), directory, "scores", caption))
    captions: dict[Axis, str] = {
        "steps": "over steps: training episodes (mean of up to the last 100) and evaluations (circles)",
        "hours": "over wall-clock time",
    }
    curves = {
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
    return overview, curves


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
            interval = (
                "one seed: no interval" if found.low is None else f"{score(found.low, 3)} to {score(found.high, 3)}"
            )
            tiles.append((name, score(found.value, 3), interval))
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


def _score_row(comparison: Comparison, game: str, arm: Arm) -> dict[str, Any]:
    """Row of the table of scores."""
    scores = comparison.scores(arm, game)
    best = [_best_evaluation(run) for run in arm.of(game)]
    known = [value for value in best if math.isfinite(value)]
    mean = float(scores.mean()) if len(scores) else None
    return {
        "game": game,
        "arm": arm.label,
        "seeds": [run.seed for run in arm.of(game)],
        "scores": scores.tolist(),
        "mean": mean,
        "sd": float(scores.std(ddof=1)) if len(scores) > 1 else None,
        "normalized": human_normalized(game, mean) if mean is not None else None,
        "best": float(np.mean(known)) if known else None,
        "reference": REFERENCE.get(game),
        "published": [
            (agent.scores[game], human_normalized(game, agent.scores[game])) if game in agent.scores else None
            for agent in _agents(comparison)
        ],
    }


def _best_evaluation(run: Records) -> float:
    """Mean return of the best weights, in an evaluation by the protocol, else beside training; NaN: none."""
    if "best" in run.by_protocol:
        return float(run.by_protocol["best"]["mean"])
    values = run.evaluations["mean_return"]
    return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan


def _run_row(arm: Arm, run: Records, parent: Path) -> dict[str, Any]:
    """Row of the tables of runs and of throughput; texts come from the run and are untrusted."""
    summary = run.summary or {}
    limit = _part(summary, "limit")
    evaluations = run.evaluations["mean_return"]
    return {
        "arm": arm.label,
        "path": str(run.path.absolute().relative_to(parent)),
        "game": run.game,
        "seed": run.seed,
        "state": run.state,
        "steps": run.steps,
        "seconds": newest(run.rounds["seconds"]),
        "episodes": len(run.episodes["steps"]),
        "training": newest(run.rounds["mean_return_100"]),
        "evaluation": newest(evaluations),
        "judged": run.by_protocol,
        "speed": _speed(run),
        "frames_per_second": _speed(run) * FRAME_SKIP if run.env is None else None,
        "updates_per_second": newest(run.rounds.get("updates_per_second", np.zeros(0))),
        "samples_per_step": number(summary.get("samples_per_step")),
        "limit": limit.get("name"),
        "limit_share": number(limit.get("share_of_limit")),
        "limit_sentence": limit.get("sentence"),
        "restarts": summary.get("restarts"),
        "exact": summary.get("exact"),
        "weights": str(summary.get("weights_sha256") or "")[:12],
    }


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


def _within(comparison: Comparison) -> dict[str, dict[str, list[Any]]]:
    """Settings by arm that differ among its runs without making another configuration."""
    found = {arm.label: differences(arm.runs, _RUN_ONLY) for arm in comparison.arms}
    return {
        label: {name: list(dict.fromkeys(map(str, values))) for name, values in rows.items()}
        for label, rows in found.items()
        if rows
    }


def _common_settings(runs: Sequence[Records]) -> dict[str, dict[str, Any]]:
    """Settings by section that all runs share."""
    differing = set(differences(runs)) | _RUN_ONLY
    found = {}
    for section, values in runs[0].config.items():
        own = values.get("settings")  # of the method
        flat = {**values, **own} if isinstance(own, dict) else values
        if kept := {name: flat[name] for name in flat if name not in differing | {"settings"}}:
            found[section] = kept
    return found


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
