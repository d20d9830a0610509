"""Actors alone with 1, 2, 4, ... processes, up to the usable cores.

Parts, for --only:

  alone   real runs before their first update, so the cores that inference uses are included. Each is compared with the
          bare emulator in as many processes, measured just before it
  whole   runs that learn, compared with their actors alone

The efficiency of N actors is their speed over N times the speed of one. Words after -- are flags of launch.py:

  python -m benchmarks scaling --only all -- --envs 192
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.emulator import bare_speed
from benchmarks.harness import Case, Figure, Options, Report, doublings, speed_case
from benchmarks.measured_run import NEVER_LEARNS, has_flag, measured_words, plan_of
from benchmarks.throughput import BARE_SHARE, actors_alone, run_speed
from shared.errors import ConfigError
from shared.machine.facts import usable_cores
from shared.text import count

NAMES = ("alone", "whole")
DEFAULTS = {"only": "alone", "game": "breakout", "seconds": 15.0}


def run(options: Options, report: Report) -> None:
    """Measure all numbers of actors, interleaved. Raises `ConfigError` before anything runs if a setting is invalid."""
    if has_flag(options.words, "--actors", "--env"):
        raise ConfigError("--actors is what this benchmark varies, and only games have a bare emulator: omit both.")
    words = measured_words(options.game, [*options.words, "--actors", "1"])
    plan = plan_of(words)
    if plan.run_schedule.workers:
        raise ConfigError("Workers are no actors that could play alone; their scaling is: ladder --only async.")
    cores, lanes = usable_cores(), plan.run_schedule.lanes
    if lanes < cores:
        report.notes["lanes"] = f"The run has {lanes} lanes, which no more actors can play; more --envs have more."
    numbers = [number for number in doublings(cores) if number <= lanes]
    report.run([case for number in numbers for case in cases(options, words, number)], options.repeats)


def cases(options: Options, words: list[str], number: int) -> Iterator[Case]:
    """For a number of actors: the bare emulator, the actors alone, and what was asked for besides."""
    seconds, part = options.seconds, count(number, "actor")
    bare, alone = f"bare emulator, {number}", f"actors alone, {number}"
    own = [*words, "--actors", str(number)]
    yield speed_case(bare, partial(bare_speed, options.game, BARE_SHARE * seconds, number), part=part)
    yield Case(alone, partial(actors_alone, [*own, *NEVER_LEARNS], seconds, alone, bare), part)
    if number > 1:
        name = f"efficiency of {number} actors"
        yield Case(name, lambda found: [Figure(name, found[alone] / found["actors alone, 1"] / number, "share")], part)
    if "whole" in options.names:
        yield speed_case(f"whole run, {number}", partial(run_speed, own, seconds), limit=alone, part=part)
