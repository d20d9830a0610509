"""End to end at steady state, against the actors alone and the learner alone.

Parts, for --parts:

  speed        a real run; its actors alone (before the first update), bounded by the bare emulator on all cores; and
               its learner alone (on noise), compared with the passes of its updates. An on-policy method has no play
               before its first update, so DQN with its network plays instead, and its updates have no bound. Workers
               have neither side alone, so their run is compared with the bare emulator
  evaluation   the cost of evaluation during training: the run again, with an evaluation in progress all the time
  round        the cost of the barrier at the end of a round: with it (concurrent) against without it (free), with the
               run's settings, and with an update every 400 steps, where emulation is the bottleneck. With workers:
               the price of the order of gradients, ordered against async

Figures are compared within a repeat, which measures one after the other. Each run must have done the work that its
settings ask for; resets, commits and checkpoint segments are included. Words after -- are flags of launch.py:

  python launch.py bench throughput --game pong --seconds 60 -- --actors 12 --envs 192
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.gpu_use import GpuUse
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.measured_plans import (
    BARE_SHARE,
    NEVER_LEARNS,
    PROBE_SHARE,
    WORKER_PACE,
    acting_words,
    has_flag,
    make_plan,
    note_rounds,
    require_game,
    rounds_that_fit,
)
from ringside.bench.harness.measured_runs import Throughput, measure_run
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.network_parts.learner_alone import learner_alone, learner_pace
from ringside.bench.system_parts.emulator import bare_speeds
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan
from shared.text import count

PARTS = ("speed", "evaluation", "round")
EVALUATIONS = 5
"""Most evaluations that start in a measurement: one is nearly always in progress, and four never wait, which would
stall the learner."""
LEAST_ROUNDS_BETWEEN_EVALUATIONS = 3
AS_IT_IS = "as it is"
CASES: dict[str, tuple[str, ...]] = {AS_IT_IS: (), "an update every 400 steps": ("--train-every", "400")}
"""Arguments of the two cases of the part `round`."""

END_TO_END, SMALLER, IN_TURN = "end to end", "the smaller of the two alone", "the two alone, in turn"
BARE, ACTORS, LEARNER, WORKERS = "bare emulator, all cores", "actors alone", "learner alone", "workers"
PASSES = "passes of the updates"
EVALUATED = "end to end, with an evaluation"


@dataclass(frozen=True)
class Runs:
    """Settings of the runs of a benchmark."""

    learning: list[str]
    """Arguments of learning runs: five rounds fit into a measurement at the speed of the slower side."""
    playing: list[str]
    """Arguments of the actors alone: five rounds at the emulator's speed. Shorter rounds would add barriers."""
    evaluation_steps: int
    """Steps between two evaluations."""


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench throughput`."""

    seconds: float = 30.0
    """Seconds of whole rounds of each run, after it has warmed up, and of the learner alone."""
    parts: str = "speed,evaluation"
    """Parts to be measured, separated by commas; all: all of them."""


def measure(options: Options, report: Report) -> None:
    """Measure the requested parts. Raises `ConfigError` before anything runs if a setting is invalid."""
    parts = names_in_list(options.parts, PARTS, "--parts")
    with report.measuring("settings"):
        plan = make_plan(options.game, options.words)
    if report.missing:
        return
    runs = _fitted(options, parts, plan, report)
    plan = make_plan(options.game, runs.learning)
    found = measure_interleaved(report, list(_contenders(options, parts, runs, plan)), options.repeats)
    if "speed" in parts:
        _add_sides(report, found, plan)
    _add_run(report, found.get(END_TO_END, []), plan)
    _add_evaluation(report, found)
    _add_round(report, found, plan)


def _contenders(options: Options, parts: Sequence[str], runs: Runs, plan: Plan) -> Iterator[Contender]:
    """Contenders of each repeat, in the order of measurement."""

    def running(name: str, *more: str) -> Contender:
        return Contender(name, partial(measure_run, options.game, options.seconds, [*runs.learning, *more]))

    if "speed" in parts or "evaluation" in parts:
        yield running(END_TO_END)  # first, so that an interrupt leaves this figure
    if "speed" in parts:
        yield Contender(BARE, partial(_bare, plan, BARE_SHARE * options.seconds))
    if "speed" in parts and not plan.run_schedule.workers:
        acting = acting_words(plan) if plan.method.on_policy else [*runs.playing, *NEVER_LEARNS]
        yield Contender(ACTORS, partial(measure_run, options.game, options.seconds, acting, learning=False))
        yield Contender(LEARNER, partial(learner_alone, plan, options.seconds))
    if "evaluation" in parts:
        yield running(EVALUATED, "--eval-every-steps", str(runs.evaluation_steps))
    if "round" in parts:
        for case, flags in _cases(plan).items():
            for schedule in _schedules(plan):
                yield running(f"{schedule}, {case}", *flags, "--schedule", schedule)


def _schedules(plan: Plan) -> tuple[str, str]:
    """The schedules that the part `round` compares: without a barrier, and with it."""
    return ("async", "ordered") if plan.run_schedule.workers else ("free", "concurrent")


def _cases(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Arguments of the cases of the part `round`; gradients of workers have one rhythm."""
    return {AS_IT_IS: ()} if plan.run_schedule.workers else CASES


def _fitted(options: Options, parts: Sequence[str], plan: Plan, report: Report) -> Runs:
    """Settings whose rounds and evaluations fit into a measurement."""
    words, seconds = list(options.words), PROBE_SHARE * options.seconds
    paces: dict[str, float] = {}
    if plan.run_schedule.workers:
        paces[WORKERS] = WORKER_PACE * usable_cores()
    elif "evaluation" in parts or not has_flag(words, "--round-steps"):
        with report.measuring(LEARNER):
            paces[LEARNER] = learner_pace(plan, seconds)
        with report.measuring(BARE):
            paces[BARE] = _bare(plan, seconds)
    slower = min(paces.values(), default=0.0)
    learning = playing = words
    if paces and not has_flag(words, "--round-steps"):
        learning = rounds_that_fit(plan, words, options.seconds, slower)
        playing = rounds_that_fit(plan, words, options.seconds, paces[BARE]) if BARE in paces else learning
    fitted = make_plan(options.game, learning)
    alone = make_plan(options.game, playing) if "speed" in parts else None
    note_rounds(report, plan, fitted, options.seconds, "the actors alone", alone)
    rounds = math.ceil(slower * options.seconds / EVALUATIONS / fitted.run_schedule.round_steps)
    evaluation_steps = max(LEAST_ROUNDS_BETWEEN_EVALUATIONS, rounds) * fitted.run_schedule.round_steps
    return Runs(learning, playing, evaluation_steps)


def _bare(plan: Plan, seconds: float) -> float:
    """Steps/s of the bare emulator on all cores at once."""
    require_game(plan)
    return sum(bare_speeds(plan.config.play.game, seconds, usable_cores()))


def _add_sides(report: Report, found: Mapping[str, list[Any]], plan: Plan) -> None:
    """Add actors and learner, each against its bound, and the smaller of the two."""
    every = plan.run_schedule.steps_per_update
    with report.measuring("speed"):
        bare, actors, learner = (found.get(name, []) for name in (BARE, ACTORS, LEARNER))
        if bare:
            report.add(BARE, "steps/s", bare, note=f"{usable_cores()} processes")
        if actors:
            speeds = [each.steps_per_second for each in actors]
            shares = [each.played_per_second / most for each, most in zip(actors, bare, strict=True)] if bare else []
            report.add(
                ACTORS, "steps/s", speeds, limit=BARE if bare else None, ratios=shares, note=count(plan.actors, "actor")
            )
        if learner:
            bounds = [each.bound_per_second * every for each in learner if each.bound_per_second is not None]
            bound = report.add(PASSES, "steps/s", bounds).name if len(bounds) == len(learner) else None
            speeds = [each.updates_per_second * every for each in learner]
            report.add(LEARNER, "steps/s", speeds, limit=bound)
        if actors and learner:
            sides = zip(report.row(ACTORS).values, report.row(LEARNER).values, strict=True)
            if plan.config.learn.schedule == "alternate":
                report.add(IN_TURN, "steps/s", [1 / (1 / acts + 1 / learns) for acts, learns in sides])
            else:
                report.add(SMALLER, "steps/s", [min(pair) for pair in sides])


def _add_run(report: Report, runs: Sequence[Throughput], plan: Plan) -> None:
    """Add rows for the run: speed, samples per step, resets, busy shares and memory; and a note with its bottleneck."""
    if not runs:
        return
    with report.measuring("the run"):
        limits = (BARE,) if plan.run_schedule.workers else (SMALLER, IN_TURN)
        limit = next((row.name for row in report.rows if row.name in limits), None)
        report.add(END_TO_END, "steps/s", [each.steps_per_second for each in runs], limit=limit)
        report.add(
            "samples a step",
            "samples",
            [each.samples_per_step for each in runs],
            note=f"asked: {plan.run_schedule.update_samples / plan.run_schedule.steps_per_update:g}",
        )
        report.add("episodes ended", "", [each.episodes for each in runs])
        report.add("from the command to the first round", "s", [each.first_step_seconds for each in runs])
    with report.measuring("busy share"):
        for role in runs[0].busy:
            report.add(role, "of the time", [each.busy[role] for each in runs])
        _add_role_busy(report, "scribe", runs)
        gpu = [each.gpu for each in runs if each.gpu is not None]
        if len(gpu) == len(runs):
            report.add("GPU", "of the time", [use.share for use in gpu])
    with report.measuring("memory"):
        memory = [each.summary["memory"] for each in runs]
        report.add("shared region", "MB", [each["shared_bytes"] / 1e6 for each in memory])
        for role in ("worker", "scribe") if plan.run_schedule.workers else ("learner", "inference", "actor", "scribe"):
            _add_private(report, role, runs)
        if any(each["device_bytes"] for each in memory):
            _add_device_memory(report, memory, gpu)
    report.note(f"What the run says of itself: {runs[-1].summary['limit']['sentence']}")
    if not any(each.episodes for each in runs):
        report.note("No episode ended while a run was measured: its speed is without resets; more --seconds have them.")
    if plan.config.machine.device == "cpu" and not plan.run_schedule.workers:
        report.note(
            "Without a GPU actors, inference and learner share the cores: together they cannot do what each does alone."
        )


def _add_role_busy(report: Report, role: str, runs: Sequence[Throughput]) -> None:
    """Add the busy share of a role that is only in the summary."""
    shares = [each.summary["roles"][role]["busy"] for each in runs]
    report.add(role, "of the time", shares, note="while it learned")


def _add_private(report: Report, role: str, runs: Sequence[Throughput]) -> None:
    private = [largest(each.summary["memory"]["private_bytes"], role) / 1e6 for each in runs]
    report.add(f"private, {role}", "MB", private, note="the largest" if role in ("actor", "worker") else "")


def _add_device_memory(report: Report, memory: Sequence[Mapping[str, Any]], gpu: Sequence[GpuUse]) -> None:
    """Add GPU memory: PyTorch's allocation by process, the replay buffer's part of it, and all other use."""
    for role in ("learner", "inference"):
        report.add(f"on the GPU, {role}", "MB", [each["device_bytes"][role] / 1e6 for each in memory])
    report.add("of it the replay", "MB", [each["replay_device_bytes"] / 1e6 for each in memory])
    if len(gpu) == len(memory):
        held = [sum(each["device_bytes"].values()) for each in memory]
        rest = [(use.bytes - size) / 1e6 for use, size in zip(gpu, held, strict=True)]
        report.add("on the GPU, contexts and others", "MB", rest)


def largest(private_bytes: Mapping[str, int], role: str) -> int:
    """Most private bytes of a process with this role; names are those of `shared.memory.process_table`."""
    return max(size for name, size in private_bytes.items() if name.split(" ")[0] == role)


def _add_evaluation(report: Report, found: Mapping[str, list[Any]]) -> None:
    """Add the cost of evaluation."""
    if runs := found.get(EVALUATED):
        with report.measuring(EVALUATED):
            if not all(each.summary["roles"]["evaluator"]["busy"] for each in runs):
                raise WrongResult("The evaluator was never at work while its price was measured.")
            speeds = [each.steps_per_second for each in runs]
            report.add(EVALUATED, "steps/s", speeds, limit=END_TO_END if END_TO_END in found else None)
            _add_role_busy(report, "evaluator", runs)
            _add_private(report, "evaluator", runs)


def _add_round(report: Report, found: Mapping[str, list[Any]], plan: Plan) -> None:
    """Add the cost of the barrier."""
    for case in _cases(plan):
        names = [f"{schedule}, {case}" for schedule in _schedules(plan)]
        if all(map(found.get, names)):
            with report.measuring("round"):
                free, exact = ([each.steps_per_second for each in found[name]] for name in names)
                report.add(names[0], "steps/s", free)
                report.add(names[1], "steps/s", exact, limit=names[0])
