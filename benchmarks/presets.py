"""The cost of each preset: its learner alone; with --end-to-end also short runs.

Everything is compared with the preset `nature`, which is always measured: samples/s of the learner on a full window of
noise, and steps/s of real runs, whose samples per step are noted. An on-policy preset has rounds of noise, and its
updates include the targets of the round. On a CPU the learner's rounds are short. Presets of workers have no learner:
--end-to-end measures their runs.

On a CPU an update of btr takes seconds: omit it, or wait. --only takes names of presets. Words after -- are flags of
launch.py:

  python -m benchmarks presets --only rainbow,iqn --end-to-end -- --actors 12
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Case, Figure, Options, Report, measure_at_once
from benchmarks.measured_run import has_flag, measure_run, measured_words, plan_of
from benchmarks.network_parts import learner_alone
from shared.config.presets import PRESETS
from shared.errors import ConfigError
from shared.memory.plan import Plan

PLAIN = "nature"
NAMES = tuple(PRESETS)
DEFAULTS = {"only": "all", "game": "breakout", "seconds": 10.0}
OPTIONS = {"--end-to-end": {"action": "store_true", "help": "measure short runs, too"}}
LEAST_UPDATES, LEAST_SAMPLES = 16, 2_048
"""Least updates, two chunks, and samples in a round of the learner alone; fewer would take less time than a commit."""


def run(options: Options, report: Report) -> None:
    """Measure the requested presets. Raises `ConfigError` before anything runs if a setting is invalid."""
    if has_flag(options.words, "--preset"):
        raise ConfigError("--preset after -- is what this benchmark varies: pass --only before it.")
    names = dict.fromkeys([PLAIN, *options.names])
    words = {name: measured_words(options.game, options.words, "--preset", name) for name in names}
    plans = {name: plan_of(own) for name, own in words.items()}
    learners = {name: plan for name, plan in plans.items() if not plan.run_schedule.workers}
    if len(learners) < len(plans) and not options.end_to_end:
        without = ", ".join(name for name in plans if name not in learners)
        report.notes["workers"] = f"Without a learner: {without}; --end-to-end measures the runs."
    cases = [Case(name, partial(learner, name, plan, options.seconds), name) for name, plan in learners.items()]
    if options.end_to_end:
        wholes = {f"{name}, run": partial(whole, name, own, options.seconds, report) for name, own in words.items()}
        cases += [Case(name, measure, "end to end") for name, measure in wholes.items()]
    report.run(cases, options.repeats)


def learner(name: str, plan: Plan, seconds: float, found: object) -> list[Figure]:
    """Figures of the learner alone."""
    learn = plan.config.learn
    if plan.config.machine.device == "cpu" and not plan.method.on_policy:
        updates = max(LEAST_UPDATES, LEAST_SAMPLES // learn.batch_size)
        steps = max(plan.run_schedule.envs, updates * learn.train_every)
        plan = Plan(plan.config.with_settings(round_steps=min(learn.round_steps, steps)), plan.actions)
    (speed,) = measure_at_once([(learner_alone, plan)], seconds)
    note = f"{plan.parameters.count / 1e6:.2f} million parameters, {learn.batch_size} a batch"
    limit = None if name == PLAIN else f"{PLAIN}, samples"
    return [
        Figure(f"{name}, learner", speed, "updates/s", note=note),
        Figure(f"{name}, samples", speed * learn.batch_size, "samples/s", limit),
    ]


def whole(name: str, words: list[str], seconds: float, report: Report, found: object) -> list[Figure]:
    """Figure of a run with a preset; a note names its bottleneck."""
    run = measure_run(words, seconds)
    report.notes[name] = f"{name}, run: {run.summary['limit']['sentence']}"
    limit, note = None if name == PLAIN else f"{PLAIN}, run", f"{run.samples_per_step:.3g} samples a step"
    return [Figure(f"{name}, run", run.steps_per_second, limit=limit, note=note)]
