"""Actors alone, or a learner alone, with 1, 2, 4, ... processes, up to the cores of this machine.

Parts, for --only:

  alone    real runs before their first update, so the cores that inference uses are included. Each is compared with the
           bare emulator in as many processes, measured just before it
  whole    runs that learn, compared with their actors alone
  learner  the learner alone, with members up to the physical cores that share --learner-parts evenly
  parts    CPU time of one member's part of an update, on one core; 16 parts unless --learner-parts says otherwise. The
           other members compute nothing, so its gradients are not those of a run

The efficiency of N actors or members is their speed over N times the speed of one. Words after -- are flags of
launch.py:

  python -m benchmarks scaling --only all -- --envs 192
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.emulator import bare_speed
from benchmarks.harness import Case, Figure, Options, Report, doublings, measure_at_once, speed_case
from benchmarks.measured_run import acting_words, has_flag, measured_words, plan_of
from benchmarks.network_parts import part_of_update
from benchmarks.throughput import BARE_SHARE, actors_alone, run_speed, updates_alone
from shared.config.sections import PARTS
from shared.errors import ConfigError
from shared.machine.facts import physical_cores, usable_cores
from shared.memory.plan import Plan
from shared.text import count

NAMES = ("alone", "whole", "learner", "parts")
DEFAULTS = {"only": "alone", "game": "breakout", "seconds": 15.0}


def run(options: Options, report: Report) -> None:
    """Measure all numbers of actors, interleaved. Raises `ConfigError` before anything runs if a setting is invalid."""
    if has_flag(options.words, "--actors", "--env"):
        raise ConfigError("--actors is what this benchmark varies, and only games have a bare emulator: omit both.")
    words = measured_words(options.game, [*options.words, "--actors", "1"])
    plan = plan_of(words)
    if plan.run_schedule.workers:
        raise ConfigError("Workers are no actors that could play alone; their scaling is: ladder --only async.")
    if plan.config.machine.device != "cpu" and {"learner", "parts"} & set(options.names):
        raise ConfigError("Members of a learner share a CPU: pass --device cpu.")
    if "learner" in options.names and has_flag(options.words, "--learner-members"):
        raise ConfigError("--learner-members is what --only learner varies: omit it.")
    acts, cores, lanes = {"alone", "whole"} & set(options.names), usable_cores(), plan.run_schedule.lanes
    if acts and lanes < cores:
        report.notes["lanes"] = f"The run has {lanes} lanes, which no more actors can play; more --envs have more."
    numbers = [number for number in doublings(cores) if acts and number <= lanes]
    acting = [case for number in numbers for case in cases(options, words, number)]
    report.run([*acting, *member_cases(options, plan, report)], options.repeats)


def cases(options: Options, words: list[str], number: int) -> Iterator[Case]:
    """For a number of actors: the bare emulator, the actors alone, and what was asked for besides."""
    seconds, part = options.seconds, count(number, "actor")
    bare, alone = f"bare emulator, {number}", f"actors alone, {number}"
    own = [*words, "--actors", str(number)]
    yield speed_case(bare, partial(bare_speed, options.game, BARE_SHARE * seconds, number), part=part)
    yield Case(alone, partial(actors_alone, acting_words(plan_of(own), own), seconds, alone, bare), part)
    if number > 1:
        yield efficiency("actors alone", part, number)
    if "whole" in options.names:
        yield speed_case(f"whole run, {number}", partial(run_speed, own, seconds), limit=alone, part=part)


def member_cases(options: Options, plan: Plan, report: Report) -> Iterator[Case]:
    """By number of members: the learner alone, and CPU times of one member's part of an update."""
    machine, seconds, cores = plan.config.machine, options.seconds, min(usable_cores(), physical_cores())
    members = [number for number in PARTS if machine.learner_parts % number == 0 and number <= cores]
    for number in members if "learner" in options.names else ():
        part, own = count(number, "member"), Plan(plan.config.with_settings(learner_members=number), plan.actions)
        yield speed_case(f"learner alone, {number}", partial(updates_alone, own, seconds), part=part)
        if number > 1:
            yield efficiency("learner alone", part, number)
    if "parts" in options.names:
        parts = machine.learner_parts if has_flag(options.words, "--learner-parts") else PARTS[-1]
        own = Plan(plan.config.with_settings(learner_parts=parts), plan.actions)
        report.notes["parts"] = f"One member computed its share of {parts} parts alone: its gradients are not a run's."
        for number in (each for each in PARTS if parts % each == 0):
            yield Case(f"one of {number}", partial(part_alone, own, number, seconds), "CPU time of a part")


def part_alone(plan: Plan, members: int, seconds: float, found: object) -> Iterator[Figure]:
    """Figures of one member's part of an update."""
    (times,) = measure_at_once([(part_of_update, plan, members)], seconds)
    for name, time in zip(("all but the optimizer", "optimizer"), times, strict=True):
        yield Figure(f"one of {members}: {name}", 1e3 * time, "ms", f"one of 1: {name}")


def efficiency(kind: str, part: str, number: int) -> Case:
    """The speed of so many over so many times the speed of one."""
    name, speed = f"efficiency of {part}", f"{kind}, {number}"
    return Case(name, lambda found: [Figure(name, found[speed] / found[f"{kind}, 1"] / number, "share")], part)
