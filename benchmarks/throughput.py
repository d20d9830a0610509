"""End to end at steady state, against the actors alone and the learner alone.

Parts, for --only:

  speed        a real run; its actors alone (before the first update), bounded by the bare emulator on all cores; and
               its learner alone (on noise). An on-policy method has no play before its first update, so DQN with its
               network plays instead. Workers have neither side alone, so their run is compared with the bare emulator
  learner      the learner alone
  evaluation   the cost of evaluation during training: the run again, with an evaluation in progress all the time
  round        the cost of the barrier at the end of a round: with it (concurrent) against without it (free), with the
               run's settings, and with an update every 400 steps, where emulation is the bottleneck. With workers:
               the price of the order of gradients, ordered against async

Figures are compared within a repeat, which measures one after the other. Each run must have done the work that its
settings ask for; resets, commits and checkpoint segments are included. Words after -- are flags of launch.py:

  python -m benchmarks throughput --game pong --seconds 60 -- --actors 12 --envs 192
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.emulator import bare_speed
from benchmarks.harness import CannotRun, Case, Figure, Found, Options, Report, WrongResult, measure_at_once, speed_case
from benchmarks.measured_run import Throughput, acting_words, measure_run, measured_words, plan_of
from benchmarks.network_parts import learner_alone
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan

NAMES = ("speed", "learner", "evaluation", "round")
DEFAULTS = {"only": "speed,evaluation", "game": "breakout", "seconds": 30.0}
BARE_SHARE = 0.25
"""Share of the measuring time for what is at steady state from its start: the bare emulator."""
EVALUATIONS = 5
"""Most evaluations that start in a measurement: one is nearly always in progress, and four never wait, which would
stall the learner."""
LEAST_ROUNDS_BETWEEN_EVALUATIONS = 3
ROUND_CASES = {"as it is": (), "an update every 400 steps": ("--train-every", "400")}
"""Flags of the two cases of the part `round`."""


END_TO_END, SIDES, EVALUATED = "end to end", "the two alone", "end to end, with an evaluation"
BARE, ACTORS, LEARNER = "bare emulator, all cores", "actors alone", "learner alone"


def run(options: Options, report: Report) -> None:
    """Measure the requested parts. Raises `ConfigError` before anything runs if a setting is invalid."""
    words = measured_words(options.game, options.words)
    plan = plan_of(words)
    report.notes["rounds"] = f"Rounds have {plan.run_schedule.round_steps:,} steps; actors: {plan.actors}."
    report.run(list(cases(options, report, plan, words)), options.repeats)


def cases(options: Options, report: Report, plan: Plan, words: list[str]) -> Iterator[Case]:
    """The cases of all requested parts, in the order of measurement."""
    seconds, workers = options.seconds, plan.run_schedule.workers
    parts = set(options.names)
    if parts & {"speed", "evaluation"}:
        yield Case(END_TO_END, lambda found: whole_run(measure_run(words, seconds), plan, report), "the run")
    if "speed" in parts:
        yield speed_case(BARE, partial(bare, plan, BARE_SHARE * seconds), note=f"{usable_cores()} processes")
    if "speed" in parts and not workers:
        yield Case(ACTORS, partial(actors_alone, acting_words(plan, words), seconds, ACTORS, BARE))
    if parts & {"speed", "learner"} and not workers:
        yield speed_case(LEARNER, partial(updates_alone, plan, seconds), part="the learner")
    if "speed" in parts and not workers:
        yield Case(SIDES, lambda found: [both_sides(found, in_turn=plan.config.learn.schedule == "alternate")])
    if "evaluation" in parts:
        yield Case(EVALUATED, partial(evaluated_run, words, plan, seconds))
    if "round" in parts:
        for case, flags in list(ROUND_CASES.items())[: 1 if workers else None]:
            free, exact = ("async", "ordered") if workers else ("free", "concurrent")
            for schedule, limit in ((free, None), (exact, f"{free}, {case}")):
                own = [*words, *flags, "--schedule", schedule]
                yield speed_case(f"{schedule}, {case}", partial(run_speed, own, seconds), limit=limit, part="round")


def run_speed(words: list[str], seconds: float) -> float:
    """Steps/s of a run."""
    return measure_run(words, seconds).steps_per_second


def bare(plan: Plan, seconds: float) -> float:
    """Steps/s of the bare emulator on all cores at once. Raises `CannotRun` for an env."""
    if plan.config.play.env is not None:
        raise CannotRun("Only games of ale-py have a bare emulator to compare with.")
    return bare_speed(plan.config.play.game, seconds, usable_cores())


def actors_alone(words: list[str], seconds: float, name: str, limit: str, found: Found) -> list[Figure]:
    """Steps/s of a run that never learns; its share of the bare emulator, which counts no resets."""
    alone = measure_run(words, seconds, learning=False)
    share = alone.played_per_second / found[limit] if limit in found else None
    return [Figure(name, alone.steps_per_second, limit=limit, ratio=share)]


def updates_alone(plan: Plan, seconds: float) -> float:
    """Speed of the learner's updates, in the steps that they allow."""
    (updates,) = measure_at_once([(learner_alone, plan)], seconds)
    return float(updates * plan.run_schedule.steps_per_update)


def both_sides(found: Found, *, in_turn: bool) -> Figure:
    """The bound of a run by its sides: the smaller of the two, or both in turn."""
    acts, learns = found[ACTORS], found[LEARNER]
    if in_turn:
        return Figure(SIDES, 1 / (1 / acts + 1 / learns), note="in turn")
    return Figure(SIDES, min(acts, learns), note="the smaller")


def by_role(processes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Values by role; names are those of `shared.memory.process_table`, such as "actor 3"."""
    found: dict[str, list[Any]] = {}
    for name, value in processes.items():
        found.setdefault(name.split(" ")[0], []).append(value)
    return found


def whole_run(run: Throughput, plan: Plan, report: Report) -> Iterator[Figure]:
    """Figures of a run: speed, samples, resets, busy shares and memory; and a note with its bottleneck."""
    schedule, memory = plan.run_schedule, run.summary["memory"]
    asked = schedule.update_samples / schedule.steps_per_update
    yield Figure(END_TO_END, run.steps_per_second, limit=BARE if schedule.workers else SIDES)
    yield Figure("samples a step", run.samples_per_step, "samples", note=f"asked: {asked:g}")
    yield Figure("episodes ended", run.episodes, "")
    yield Figure("from the command to the first round", run.first_step_seconds, "s")
    yield Figure("shared region", memory["shared_bytes"] / 1e6, "MB")
    for role, busy in by_role(run.summary["roles"]).items():
        yield Figure(f"busy, {role}", fmean(each["busy"] for each in busy), "of the time")
    for role, sizes in by_role(memory["private_bytes"]).items():
        yield Figure(f"private, {role}", max(sizes) / 1e6, "MB")
    for name, size in memory["device_bytes"].items():
        yield Figure(f"on the GPU, {name}", size / 1e6, "MB")
    report.notes["limit"] = f"What the run says of itself: {run.summary['limit']['sentence']}"


def evaluated_run(words: list[str], plan: Plan, seconds: float, found: Found) -> list[Figure]:
    """The run again, with evaluations as often as none has to wait."""
    rounds = math.ceil(found.get(END_TO_END, 0.0) * seconds / EVALUATIONS / plan.run_schedule.round_steps)
    steps = max(LEAST_ROUNDS_BETWEEN_EVALUATIONS, rounds) * plan.run_schedule.round_steps
    run = measure_run([*words, "--eval-every-steps", str(steps)], seconds)
    if not run.summary["roles"]["evaluator"]["busy"]:
        raise WrongResult("The evaluator was never at work while its price was measured.")
    speed = Figure(EVALUATED, run.steps_per_second, limit=END_TO_END)
    return [speed, Figure("evaluator at work", run.summary["roles"]["evaluator"]["busy"], "of the time")]
