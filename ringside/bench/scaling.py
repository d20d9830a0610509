"""Actors alone with 1, 2, 4, ... processes, up to the usable cores.

These are real runs before their first update, so the cores that inference uses are included. Each is compared with the
bare emulator in as many processes, measured just before it. The efficiency of N actors is their speed over N times the
speed of one. With --whole, learning runs are compared with their actors alone. Words after -- are flags of launch.py:

  python launch.py bench scaling --whole -- --envs 192
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.interleaved import Contender, doublings, measure_interleaved
from ringside.bench.harness.measured_plans import (
    BARE_SHARE,
    NEVER_LEARNS,
    PROBE_SHARE,
    has_flag,
    make_plan,
    note_rounds,
    require_game,
    require_no_actors,
    rounds_that_fit,
)
from ringside.bench.harness.measured_runs import measure_run
from ringside.bench.harness.tables import Report
from ringside.bench.network_parts.learner_alone import learner_pace
from ringside.bench.system_parts.emulator import bare_speed, bare_speeds
from shared.errors import ConfigError
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench scaling`."""

    seconds: float = 15.0
    """Seconds of whole rounds of each run, after it has warmed up."""
    whole: bool = False
    """Measure whole runs, too, which learn."""


@dataclass(frozen=True)
class Runs:
    """Arguments of the runs with one number of actors; both have as many rounds in a measurement."""

    alone: Sequence[str]
    whole: Sequence[str]


def actor_counts(cores: int, lanes: int) -> list[int]:
    """1, 2, 4, ... and the number of cores, up to the number of lanes."""
    return [count for count in doublings(cores) if count <= lanes]


def measure(options: Options, report: Report) -> None:
    """Measure all numbers of actors, interleaved. Raises `ConfigError` before anything runs if a setting is invalid."""
    require_no_actors(options.words)
    with report.measuring("settings"):
        plan = make_plan(options.game, [*options.words, "--actors", "1"])
        require_game(plan)
        if plan.run_schedule.workers:
            raise ConfigError("Workers are no actors that could play alone; their scaling is: bench ladder --async.")
    if report.missing:
        return
    cores, lanes = usable_cores(), plan.run_schedule.lanes
    if lanes < cores:
        report.note(f"The run has {lanes} lanes, which no more actors than that can play; more --envs have more.")
    pace, learner = _paces(options, plan, report)

    def fitted(count: int, pace: float) -> list[str]:
        return rounds_that_fit(plan, [*options.words, "--actors", str(count)], options.seconds, pace)

    runs = {
        count: Runs(fitted(count, count * pace), fitted(count, min(count * pace, learner)))
        for count in actor_counts(cores, lanes)
    }
    alone, whole = (make_plan(options.game, words) for words in (runs[1].alone, runs[1].whole))
    note_rounds(report, plan, alone, options.seconds, "whole runs", whole if options.whole else None)
    _add(report, runs, measure_interleaved(report, list(_contenders(options, plan, runs)), options.repeats))


def _paces(options: Options, plan: Plan, report: Report) -> tuple[float, float]:
    """Highest steps/s of one actor and of the learner; infinite if not needed or not measurable."""
    seconds, actor, learner = PROBE_SHARE * options.seconds, math.inf, math.inf
    if not has_flag(options.words, "--round-steps"):
        if options.whole:
            with report.measuring("the learner's pace"):
                learner = learner_pace(plan, seconds)
        with report.measuring("an actor's pace"):
            actor = bare_speed(plan.config.play.game, seconds)
    return actor, learner


def _contenders(options: Options, plan: Plan, runs: Mapping[int, Runs]) -> Iterator[Contender]:
    """For every number of actors: the bare emulator, the actors alone, and the whole run if requested."""
    for count, words in runs.items():
        yield Contender(_bare(count), partial(_emulation, plan.config.play.game, BARE_SHARE * options.seconds, count))
        yield Contender(
            _alone(count),
            partial(measure_run, options.game, options.seconds, [*words.alone, *NEVER_LEARNS], learning=False),
        )
        if options.whole:
            yield Contender(_whole(count), partial(measure_run, options.game, options.seconds, words.whole))


def _add(report: Report, counts: Iterable[int], found: Mapping[str, list[Any]]) -> None:
    """Add the rows of every number of actors that could be measured."""
    for count in counts:
        bare, alone, whole = (found.get(name(count)) for name in (_bare, _alone, _whole))
        with report.measuring(f"actors: {count}"):
            if bare:
                report.add(_bare(count), "steps/s", bare)
            if alone:
                shares = [each.played_per_second / most for each, most in zip(alone, bare, strict=True)] if bare else []
                speeds = [each.steps_per_second for each in alone]
                report.add(_alone(count), "steps/s", speeds, limit=_bare(count) if bare else None, ratios=shares)
                if count > 1 and (single := found.get(_alone(1))):
                    ratios = [speed / (count * one.steps_per_second) for speed, one in zip(speeds, single, strict=True)]
                    report.add(f"efficiency of {count} actors", "share", ratios)
            if whole:
                speeds = [each.steps_per_second for each in whole]
                report.add(_whole(count), "steps/s", speeds, limit=_alone(count) if alone else None)


def _emulation(game: str, seconds: float, processes: int) -> float:
    """Steps/s of the bare emulator, summed over `processes`."""
    return sum(bare_speeds(game, seconds, processes))


def _bare(count: int) -> str:
    return f"bare emulator, {count}"


def _alone(count: int) -> str:
    return f"actors alone, {count}"


def _whole(count: int) -> str:
    return f"whole run, {count}"
