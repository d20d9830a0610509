"""A report: a self-contained HTML page, its figures as PNG files, and its numbers as JSON.

This module computes the contents; `templates/report.html` defines the layout and escapes all values.

Notes above the tables have a sentence for everything that is missing, unequal or unusual.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside.records.metrics import MEAN_OVER, mean_name
from ringside.records.scores import REFERENCE, SOURCE, human_normalized
from ringside.report.comparison import (
    CONFIDENCE,
    FEWEST_RUNS,
    IGNORED_SETTINGS,
    STATISTICS,
    Arm,
    Comparison,
    Estimate,
    EvaluationRules,
    Published,
    comparable_agents,
    comparable_curves,
    compare,
    differences,
    published,
)
from ringside.report.records import CELL_FILE, Records, load, newest, number, part
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP, Play
from shared.config.settings import ARITHMETIC
from shared.config.trust import compare_env, require_plugin
from shared.errors import ConfigError, require
from shared.files.atomic import write_atomic
from shared.files.result_files import make_result_directory
from shared.files.strict_json import read_object
from shared.machine.contention import WORTH_SAYING
from shared.text import flag_of, headline, refused, short, shown

if TYPE_CHECKING:
    from ringside.report.plots import Axis, Picture

_NAMED = 4
"""Runs that a sentence names."""


def training_rules(comparison: Comparison) -> str:
    """Rules of training by the protocol; empty if no run played a game, or this version does not know it."""
    rules = PROTOCOLS.get(comparison.protocol)
    if rules is None or all(run.env for run in comparison.runs):
        return ""
    sticky = f"sticky actions {rules.sticky:g}" if rules.sticky else "no sticky actions"
    starts = f"{rules.noop_min} to {rules.noop_max} no-ops at the start" if rules.noop_max else "no no-ops"
    fire = ", then FIRE" if rules.fire_on_reset else ""
    longest = f"training episodes of at most {rules.longest_episode_frames:,} frames"
    return f"{sticky}, {starts}{fire}, {rules.action_set} action set, {FRAME_SKIP} frames a step, {longest}"


def notes(comparison: Comparison, published_frames: int | None) -> list[str]:
    """Sentences, mostly about runs that are incomplete or differ in ways that a reader should know.

    Args:
        published_frames: training frames of the published agents in the report; None: there are none.
    """
    found = _seeds(comparison), _episodes_behind(comparison), _arithmetic(comparison)
    return [*comparison.left_out, *_lengths(comparison.runs, published_frames), *chain(*found)]


def _named(runs: Sequence[Records]) -> str:
    """The paths of some runs."""
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return ", ".join(str(run.path) for run in runs[:_NAMED]) + more


def _lengths(runs: Sequence[Records], published_frames: int | None) -> Iterator[str]:
    if open_ends := [run for run in runs if run.state == "no end"]:
        yield f"Still running, or crashed, and reported up to their last round: {_named(open_ends)}."
    if stopped := [run for run in runs if run.state == "stopped"]:
        yield f"Stopped early, so the figures are those up to that point: {_named(stopped)}."
    steps = [run.steps for run in runs]
    if min(steps) < max(steps):
        yield f"The runs have unequal lengths, {min(steps):,} to {max(steps):,} steps."
    played = max((run.steps * FRAME_SKIP for run in runs if run.env is None), default=0)
    if published_frames is not None and played < 0.9 * published_frames:
        yield f"These runs saw at most {played:,} frames, the published agents {published_frames:,}."


def _seeds(comparison: Comparison) -> Iterator[str]:
    fewest = min(len(arm.of(game)) for arm in comparison.arms for game in arm.games)
    if fewest < FEWEST_RUNS:
        yield f"Some game has {'one seed' if fewest == 1 else 'two seeds'} only: intervals need {FEWEST_RUNS}."
    missing = [game for game in comparison.games if game not in comparison.aggregated_games]
    if missing and len(comparison.games) > 1:
        yield f"Not in the aggregates, because a configuration or the reference has no score: {', '.join(missing)}."


def _episodes_behind(comparison: Comparison) -> Iterator[str]:
    """Unusual properties of the episodes behind the scores."""
    if own := dict.fromkeys(run.env for run in comparison.runs if run.env is not None):
        names = ", ".join(map(str, own))
        yield f"Not a game of ale-py: {names}. The environment defines steps, starts and ends, not the protocol."
    if comparison.measure.rules is None:
        if short := [run for run in comparison.runs if len(run.episodes["steps"]) < MEAN_OVER]:
            fewest = min(len(run.episodes["steps"]) for run in short)
            yield (
                f"Fewer than {MEAN_OVER} training episodes ended in {_named(short)}: the mean is of those that did, "
                f"{fewest:,} in the shortest run."
            )
        return
    rules = [(run, comparison.measure.rules(run)) for run in comparison.runs]
    words = dict.fromkeys(found.in_words(run) for run, found in rules)
    if len(words) > 1:
        yield f"The runs were evaluated under different rules: {'; '.join(words)}."
    yield from _against_protocol(comparison.protocol, rules)
    if comparison.measure.name == "final evaluation":
        yield from _final_evaluations(comparison.runs)


def _against_protocol(protocol: str, rules: Sequence[tuple[Records, EvaluationRules]]) -> Iterator[str]:
    usual = PROTOCOLS.get(protocol)
    if usual is None:
        return
    wanted = str(usual.eval_episodes)
    if usual.eval_steps is not None:
        wanted += f", and of finished weights as many as fill {usual.eval_steps:,} steps"
    if few := [each.episodes for _, each in rules if math.isnan(each.steps) and each.episodes < usual.eval_episodes]:
        yield f"Scores are means of few episodes, {_range(few)}, where the protocol has {wanted}."
    other = [found.epsilon for _, found in rules if found.actions != "sample" and found.epsilon != usual.eval_epsilon]
    if other:
        yield f"Evaluated with epsilon {_range(other)}; the protocol has {usual.eval_epsilon:g}."
    longest = [found.max_frames for run, found in rules if run.env is None]
    if cut := [frames for frames in longest if frames != usual.eval_max_frames]:
        yield f"Episodes were evaluated up to {_range(cut)} frames; the protocol has {usual.eval_max_frames:,}."


def _final_evaluations(runs: Sequence[Records]) -> Iterator[str]:
    """Evaluations of other weights than the last, or with different arithmetic."""
    found = [(run, run.by_protocol["final"]) for run in runs]
    versions = [(run, number(final.get("version")), number((run.summary or {}).get("rounds"))) for run, final in found]
    if old := [run for run, version, rounds in versions if 0 <= version < rounds]:
        yield f"The final evaluation is not of the last weights in {_named(old)}."
    ways = sorted({f"{final.get('precision')} on {final.get('device')}" for _, final in found})
    if len(ways) > 1:
        yield f"Evaluations were computed differently: {', '.join(ways)}."


def _arithmetic(comparison: Comparison) -> Iterator[str]:
    """Runs that do not repeat bit for bit, were computed differently, or shared their cores with other programs."""
    if inexact := [run for run in comparison.runs if (run.summary or {}).get("exact") is False]:
        yield f"A repetition would not give the same bits: {_named(inexact)}."
    for arm in comparison.arms:
        if rows := {name: values for name, values in differences(arm.runs).items() if name in ARITHMETIC}:
            described = ", ".join(f"{flag_of(name)} {_distinct(values)}" for name, values in rows.items())
            yield f"Runs of {arm.label} were computed differently: {described}."
    between = differences([arm.runs[0] for arm in comparison.arms], IGNORED_SETTINGS)
    if set(between) == {"precision"}:
        yield f"The configurations differ in --precision alone: {_distinct(between['precision'])}."
    if shared := {run: taken for run in comparison.runs if (taken := _shared_cores(run)) >= WORTH_SAYING}:
        yield (
            f"Other programs or virtual machines used up to {max(shared.values()):.0%} of the cores of "
            f"{_named([*shared])}: speeds shown are too low."
        )


def _distinct(values: Iterable[object]) -> str:
    return " and ".join(dict.fromkeys(map(shown, values)))


def _shared_cores(run: Records) -> float:
    """Share of the usable cores that other programs took; 0 if it is unknown."""
    limit = part(run.summary, "limit")
    taken = [number(limit.get(name)) for name in ("other_programs_cores", "stolen_cores")]
    usable = number(limit.get("usable_cores"))
    return sum(cores for cores in taken if math.isfinite(cores)) / usable if usable > 0 else 0.0


def _range(values: Sequence[float]) -> str:
    """One number, or the lowest and the highest."""
    found = [f"{value:,.0f}" if value >= 1 else f"{value:g}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(found))


PAGE = "report.html"
FIGURES = "report.json"

_RUN_ONLY = frozenset({"run_dir", "resume", "plain", "seed", "game", "env"})
"""Settings that are shown for each run, or carry no information."""

Row = dict[str, str | tuple[str, str]]
"""Values of a table's row by the names of its columns; a pair is a value with a remark below it."""


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
    require("A report", "report", "jinja2", "matplotlib")
    found: list[Records] = []
    left_out = []
    for path in runs:
        try:
            with refused(f"{path} cannot be read"):
                found.append(load(path))
        except ConfigError as error:
            left_out.append(str(error))
    for records in found:
        compare_env(Play(game=records.game, env=records.env), env, what=f"The run {records.path}")
        if plugin is not None:
            require_plugin(records.settings.get("plugin"), plugin, what=f"The run {records.path}")
    comparison = compare(found, left_out)
    make_result_directory("--out", out)
    games = ", ".join(map(headline, comparison.games[:5])) + (" and more" if len(comparison.games) > 5 else "")
    with refused(f"--out {out} cannot be written"):
        page = write(comparison, out, title or f"Ringside on {games}", study)
    return page, comparison.left_out


def write(comparison: Comparison, directory: Path, title: str, study: Sequence[Picture] = ()) -> Path:
    """Write the report into a directory and return the page's path.

    Args:
        directory: must exist.
        study: plots of a search for settings, drawn already.

    Raises:
        OSError: as the system says it.
    """
    import jinja2

    from ringside.report.plots import color_of, style  # it loads matplotlib, which takes half a second

    runs, arms, agents = comparison.runs, comparison.arms, _agents(comparison)
    with style():
        curves = {game: _curves(comparison, game, directory) for game in comparison.games}
        statistics = _statistics(comparison, directory) if comparison.runs_a_game >= FEWEST_RUNS else []
    days = [time.strftime("%Y-%m-%d", time.localtime(run.newest_at)) for run in runs]
    unequal = differences(runs).keys() | _RUN_ONLY
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["headline"] = headline
    page = environment.from_string((Path(__file__).parent / "templates" / PAGE).read_text("utf-8")).render(
        title=title,
        recorded=" to ".join(dict.fromkeys((min(days), max(days)))),
        made=time.strftime("%Y-%m-%d %H:%M"),
        comparison=comparison,
        rules=training_rules(comparison),
        notes=notes(comparison, agents[0].frames if agents else None),
        colors=[color_of(i) for i in range(len(arms))],
        aggregates=[*_aggregate_rows(comparison)],
        statistics=statistics,
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
                "improvements": {name: vars(each) for name, each in comparison.improvements(arm).items()},
                "runs": [_cell(run) for run in arm.runs],
            }
            for arm in comparison.arms
        ],
    }


def _cell(run: Records) -> dict[str, Any]:
    """Arguments of a run, and what a repetition must give."""
    found = read_object(run.path / CELL_FILE) | {"path": str(run.path), "game": run.game, "seed": run.seed}
    found["hours"] = newest(run.rounds["seconds"]) / 3600
    found["weights_sha256"] = (run.summary or {}).get("weights_sha256")
    return found | {"returns": run.by_protocol.get("final", {}).get("returns")}


def score(value: object, digits: int = 1) -> str:
    """A score with grouped digits; a dash for no number."""
    found = number(value)
    if not math.isfinite(found):
        return "–"
    return f"{found:,.{0 if abs(found) >= 10_000 else digits}f}".replace("-", "−")


def _curves(comparison: Comparison, game: str, directory: Path) -> list[Picture]:
    """Learning curves of a game."""
    from ringside.report.plots import has_curve, learning_curve, save

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


def _statistics(comparison: Comparison, directory: Path) -> list[Picture]:
    """Pictures of the statistics of all games."""
    from ringside.report.plots import intervals, performance_profiles, save

    told = "Aggregates; probability that a run is better on a game than another, or than a published mean"
    first = save(intervals(comparison), directory, "intervals", told)
    return [first, save(performance_profiles(comparison), directory, "profiles", "Performance profiles")]


def _agents(comparison: Comparison) -> tuple[Published, ...]:
    """Published agents for the comparison; none if no run played a game."""
    return comparable_agents(comparison.protocol) if any(run.env is None for run in comparison.runs) else ()


def _of_arm(comparison: Comparison, arm: Arm) -> Row:
    """The cell that names the arm, if there are several."""
    return {"configuration": arm.label} if len(comparison.arms) > 1 else {}


def _aggregate_rows(comparison: Comparison) -> Iterator[Row]:
    """Rows of the table of aggregates: arms, then published agents; none without aggregated games."""
    for arm in comparison.arms if comparison.aggregated_games else ():
        few = {1: "one run a game", 2: "two runs a game"}.get(min(map(len, comparison.normalized(arm))), "")
        found = comparison.aggregates(arm).items()
        yield {"configuration": arm.label} | {
            name: (score(each.value, 3), _interval(each) or few) for name, each in found
        }
    for agent in _agents(comparison):
        if known := comparison.published_aggregates(agent):
            row: Row = {"configuration": f"{agent.name} (published)"}
            yield row | {name: score(known.get(name), 3) for name in STATISTICS}


def _interval(found: Estimate) -> str:
    return "" if found.low is None else f"{score(found.low, 3)} to {score(found.high, 3)}"


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
    return row | {
        agent.name: _normalized(game, agent.scores.get(game)) for agent in _agents(comparison) if agent.scores
    }


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
