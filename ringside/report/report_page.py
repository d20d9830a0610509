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

from ringside.records.scores import REFERENCE, SOURCE, human_normalized
from ringside.records.totals import MEAN_OVER, mean_name
from ringside.report.aggregate import CONFIDENCE, REPLICATES, Estimate
from ringside.report.comparison import Arm, Comparison, differences
from ringside.report.notes import notes, training_rules
from ringside.report.plots import Axis, Picture, color_of, has_curve, learning_curve, save, style
from ringside.report.published import FRAMES, Published, comparable_agents, comparable_curves, published
from ringside.report.records import Records, newest, number, part
from shared.files.atomic import write_atomic
from shared.text import headline, short, shown

PAGE = "report.html"
FIGURES = "report.json"

_RUN_ONLY = frozenset({"run_dir", "resume", "init_from", "plain", "seed", "game", "env"})
"""Settings that are shown for each run, or carry no information."""

Row = dict[str, str | tuple[str, str]]
"""Values of a table's row by the names of its columns; a pair is a value with a remark below it."""


def write(comparison: Comparison, directory: Path, title: str, study: Sequence[Picture] = ()) -> Path:
    """Write the report into a directory and return the page's path.

    Args:
        directory: must exist.
        study: plots of a search for settings, drawn already.

    Raises:
        OSError: as the system says it.
    """
    runs, arms, agents = comparison.runs, comparison.arms, _agents(comparison)
    with style():
        curves = {game: _curves(comparison, game, directory) for game in comparison.games}
    days = [time.strftime("%Y-%m-%d", time.localtime(run.newest_at)) for run in runs]
    unequal = differences(runs).keys() | _RUN_ONLY
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["headline"] = headline
    page = environment.from_string((Path(__file__).parent / "templates" / PAGE).read_text()).render(
        title=title,
        recorded=" to ".join(dict.fromkeys((min(days), max(days)))),
        made=time.strftime("%Y-%m-%d %H:%M"),
        comparison=comparison,
        rules=training_rules(runs),
        notes=notes(comparison, FRAMES if agents else None),
        colors=[color_of(i) for i in range(len(arms))],
        aggregates=[_aggregate_row(comparison, arm) for arm in arms if comparison.aggregated_games],
        study=study,
        curves=curves,
        agents=agents,
        published_curves=[each for game in comparison.games for each in comparable_curves(comparison.protocol, game)],
        references=any(game in REFERENCE for game in comparison.games),
        scores=[_score_row(comparison, game, arm) for game in comparison.games for arm in arms if arm.of(game)],
        runs=[_run_row(comparison, arm, run) for arm in arms for game in arm.games for run in arm.of(game)],
        settings={name: shown(value) for name, value in runs[0].settings.items() if name not in unequal},
        machines=dict.fromkeys(filter(None, map(_machine, runs))),
        human=SOURCE,
        checked=published()[1],
        confidence=round(100 * CONFIDENCE),
        replicates=REPLICATES,
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


def score(value: object, digits: int = 1) -> str:
    """A score with grouped digits; a dash for no number."""
    found = number(value)
    if not math.isfinite(found):
        return "–"
    return f"{found:,.{0 if abs(found) >= 10_000 else digits}f}".replace("-", "−")


def _curves(comparison: Comparison, game: str, directory: Path) -> list[Picture]:
    """Learning curves of a game."""
    captions: dict[Axis, str] = {
        "steps": "over steps: training episodes (mean of up to the last 100) and evaluations (circles)",
        "hours": "over wall-clock time",
    }
    plain = "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in game)[:80]
    published = {"steps": comparable_curves(comparison.protocol, game)}
    return [
        save(
            learning_curve(comparison, game, axis, published.get(axis, ())),
            directory,
            f"curve-{plain}-{axis}",
            f"{headline(game)} {caption}",
        )
        for axis, caption in captions.items()
        if has_curve(comparison, game, axis)
    ]


def _agents(comparison: Comparison) -> tuple[Published, ...]:
    """Published agents for the comparison; none if no run played a game."""
    return comparable_agents(comparison.protocol) if any(run.env is None for run in comparison.runs) else ()


def _of_arm(comparison: Comparison, arm: Arm) -> Row:
    """The cell that names the arm, if there are several."""
    return {"configuration": arm.label} if len(comparison.arms) > 1 else {}


def _aggregate_row(comparison: Comparison, arm: Arm) -> Row:
    """Row of the table of aggregates."""
    found = comparison.aggregates(arm).items()
    return {"configuration": arm.label} | {name: (score(each.value, 3), _interval(each)) for name, each in found}


def _interval(found: Estimate) -> str:
    return "one seed: no interval" if found.low is None else f"{score(found.low, 3)} to {score(found.high, 3)}"


def _score_row(comparison: Comparison, game: str, arm: Arm) -> Row:
    """Row of the table of scores; references are shown if some game has them."""
    scores, runs = comparison.scores(arm, game), arm.of(game)
    best = [value for value in map(_best_evaluation, runs) if math.isfinite(value)]
    row: Row = {"game": game, **_of_arm(comparison, arm), "seeds": str(len(runs))}
    row["mean"] = _normalized(game, scores.mean() if len(scores) else None)
    row["sd"] = score(scores.std(ddof=1) if len(scores) > 1 else None)
    row["each seed"] = ", ".join(map(score, scores.tolist()))
    row["best evaluation"] = score(np.mean(best) if best else None)
    if any(each in REFERENCE for each in comparison.games):
        row["random"], row["human"] = map(score, REFERENCE.get(game, (None, None)))
    return row | {agent.name: _normalized(game, agent.scores.get(game)) for agent in _agents(comparison)}


def _normalized(game: str, value: float | None) -> tuple[str, str]:
    """A score, and human-normalized: empty if it is unknown, or the game has no reference scores."""
    return score(value), score(human_normalized(game, value), 3) if value is not None and game in REFERENCE else ""


def _best_evaluation(run: Records) -> float:
    """Mean return of the best weights, in an evaluation by the protocol, else beside training; NaN: none."""
    if "best" in run.by_protocol:
        return float(run.by_protocol["best"]["mean"])
    return max((value for value in run.evaluations["mean_return"].tolist() if math.isfinite(value)), default=math.nan)


def _run_row(comparison: Comparison, arm: Arm, run: Records) -> Row:
    """Row of the table of runs; texts come from the run and are untrusted."""
    summary, limit, episodes = run.summary or {}, part(run.summary, "limit"), len(run.episodes["steps"])
    seconds, exact = newest(run.rounds["seconds"]), summary.get("exact")
    parent = os.path.commonpath([each.path.absolute().parent for each in comparison.runs])
    row: Row = {"run": os.path.relpath(run.path.absolute(), parent), **_of_arm(comparison, arm)}
    row |= {"game": run.game, "seed": str(run.seed), "state": run.state, "steps": short(run.steps, 4)}
    row["hours"] = score(seconds / 3600, 2)
    row["steps/s"] = score(run.steps / seconds if seconds > 0 else None, 0)
    row["limit"] = "–" if limit.get("name") == "starting" else str(limit.get("name") or "–")
    row["training"] = score(newest(run.rounds["mean_return_100"])), mean_name(episodes) if episodes < MEAN_OVER else ""
    row["last evaluation"] = score(newest(run.evaluations["mean_return"]))
    for name, kind in (("final evaluation", "final"), ("best weights", "best")):
        found = run.by_protocol.get(kind)
        row[name] = "–" if found is None else f"{score(found['mean'])} ± {score(found['sd'])}"
    row["exact"] = "–" if exact is None else "yes" if exact else "no", str(summary.get("weights_sha256") or "")[:12]
    return row


def _machine(run: Records) -> str:
    """Machine of a run; empty if it is unknown."""
    machine = part(run.summary, "machine")
    gpus, libraries = machine.get("gpus"), part(machine, "libraries")
    parts = [
        f"{machine.get('cpu')}, {machine.get('usable_cores')} cores",
        ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "no GPU",
        *(f"{name} {libraries[name]}" for name in ("torch", "ale-py") if name in libraries),
    ]
    return "; ".join(parts) if machine else ""
