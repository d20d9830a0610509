"""The cost of each preset: its learner alone; with --end-to-end also short runs.

Everything is compared with the preset `nature`, which is always measured. Compared are samples/s of the learner on a
full window of noise, and steps/s of real runs with as many samples per step. An on-policy preset has rounds of noise,
and its updates include the targets of the round. If a preset has another number of samples per step, `nature` is also
run with that number. Rounds have the length that fits, with at least 16 updates; those of on-policy presets have their
own. Presets of workers have no learner: --end-to-end measures their runs.

On a CPU an update of btr takes seconds: omit it, or wait.

  python launch.py bench presets --presets rainbow,iqn --end-to-end -- --actors 12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.measured_plans import PROBE_SHARE, ROUNDS, WORKER_PACE, has_flag, make_plan, rounds_that_fit
from ringside.bench.harness.measured_runs import Throughput, measure_run
from ringside.bench.harness.tables import Report
from ringside.bench.network_parts.learner_alone import Alone, learner_alone, learner_pace
from ringside.bench.system_parts.emulator import bare_speeds
from shared.config.presets import PRESETS
from shared.errors import ConfigError
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan
from shared.network_parameters import parameters_of

PLAIN: str = "nature"
LEAST_UPDATES = 16
"""Fewest updates in a round of the learner alone: two chunks."""


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench presets`."""

    presets: str = "all"
    """Presets to measure in addition to nature, separated by commas; all: all of them."""
    seconds: float = 10.0
    """Seconds of whole rounds of each learner, and of each run after it has warmed up."""
    end_to_end: bool = False
    """Measure short runs, too."""


class Case(NamedTuple):
    """A preset, or plain DQN at another ratio."""

    name: str
    words: list[str]
    plan: Plan

    @property
    def samples_per_step(self) -> float:
        """Samples per step by its settings."""
        return self.plan.run_schedule.update_samples / self.plan.run_schedule.steps_per_update

    @property
    def has_workers(self) -> bool:
        """True if workers take the place of a learner."""
        return self.plan.run_schedule.workers > 0

    def reference(self, plain: Case) -> str:
        """Name of the plain case with as many samples per step."""
        samples = self.samples_per_step
        return plain.name if samples == plain.samples_per_step else f"{plain.name} at {samples:g} samples"


def measure(options: Options, report: Report) -> None:
    """Measure the requested presets. Raises `ConfigError` before anything runs if a setting is invalid."""
    if has_flag(options.words, "--preset"):
        raise ConfigError("--preset after -- is what this benchmark varies: pass --presets before it.")
    names = names_in_list(options.presets, list(PRESETS), "--presets")
    cases = []
    with report.measuring("settings"):
        cases = [_case(options, name) for name in dict.fromkeys([PLAIN, *names])]
    if not cases:
        return
    learners = [case for case in cases if not case.has_workers]
    if len(learners) < len(cases) and not options.end_to_end:
        without = ", ".join(case.name for case in cases if case.has_workers)
        report.note(f"Without a learner: {without}; --end-to-end measures the runs.")
    costs = measure_interleaved(report, list(_learners(options, report, learners)), options.repeats)
    for case in cases:
        if case.name in costs:
            _add_learner(report, case, costs[case.name])
    if options.end_to_end:
        runs = [*cases, *_plain_at_other_ratios(options, cases)]
        found = measure_interleaved(report, list(_runs(options, runs, costs)), options.repeats)
        _add_runs(report, cases, found)


def _case(options: Options, preset: str, *more: str, name: str = "") -> Case:
    words = ["--preset", preset, *options.words, *more]
    return Case(name or preset, words, make_plan(options.game, words))


def _learners(options: Options, report: Report, cases: Sequence[Case]) -> Iterator[Contender]:
    """The learners, with rounds that fit into the time, unless the arguments set their length."""
    for case in cases:
        config, plan, longest = case.plan.config, case.plan, 0.0
        if not has_flag(options.words, "--round-steps") and not plan.method.on_policy:
            pace = 0.0
            with report.measuring(case.name):
                pace = learner_pace(plan, PROBE_SHARE * options.seconds)
            if not pace:
                continue
            least = max(LEAST_UPDATES * config.learn.train_every, config.play.envs)
            steps = min(config.learn.round_steps, max(least, int(pace * options.seconds / ROUNDS)))
            plan = Plan(config.with_settings(round_steps=steps), plan.actions)
            longest = plan.run_schedule.round_steps / pace
        alone = partial(learner_alone, plan, options.seconds, bounded=False, round_seconds=longest)
        yield Contender(case.name, alone)


def _add_learner(report: Report, case: Case, costs: Sequence[Alone]) -> None:
    """Add rows for the speed of a learner, and a note that sums them up."""
    learn, network = case.plan.config.learn, case.plan.network
    with report.measuring(case.name):
        size = parameters_of(network).count / 1e6
        note = f"{size:.2f} million parameters, {learn.batch_size} a batch"
        updates = report.add(
            f"{case.name}, learner", "updates/s", [each.updates_per_second for each in costs], note=note
        )
        speeds = [each.updates_per_second * learn.batch_size for each in costs]
        known = any(row.name == _samples(PLAIN) for row in report.rows)
        row = report.add(_samples(case.name), "samples/s", speeds, limit=_samples(PLAIN) if known else None)
        costs_more = f"; a sample costs {1 / row.ratio:.1f} times as much as with {PLAIN}" if row.ratio else ""
        report.note(f"{case.name}: an update takes {1e3 / updates.median:.3g} ms{costs_more}.")


def _samples(name: str) -> str:
    return f"{name}, samples"


def _plain_at_other_ratios(options: Options, cases: Sequence[Case]) -> list[Case]:
    """Plain DQN with the samples per step of each preset that differs in this number."""
    plain = cases[0]
    others = {case.reference(plain): case.samples_per_step for case in cases if case.reference(plain) != plain.name}
    batch = plain.plan.config.learn.batch_size
    return [
        _case(options, PLAIN, "--train-every", str(max(1, round(batch / samples))), name=name)
        for name, samples in others.items()
    ]


def _runs(options: Options, cases: Sequence[Case], costs: Mapping[str, list[Alone]]) -> Iterator[Contender]:
    """Short runs, with rounds that fit at the speed of the slower of actors and learner, or at that of workers."""
    play = cases[0].plan.config.play
    most = float("inf")
    if play.env is None:
        most = sum(bare_speeds(play.game, PROBE_SHARE * options.seconds, usable_cores()))
    for case in cases:
        cost = costs.get(case.name) or costs.get(PLAIN)
        if cost or case.has_workers:
            pace = WORKER_PACE * usable_cores()
            if cost and not case.has_workers:
                pace = min(most, cost[0].updates_per_second * case.plan.run_schedule.steps_per_update)
            words = rounds_that_fit(case.plan, case.words, options.seconds, pace)
            yield Contender(f"{case.name}, run", partial(measure_run, options.game, options.seconds, words))


def _add_runs(report: Report, cases: Sequence[Case], found: Mapping[str, list[Any]]) -> None:
    """Add the speed of every run, with its ratio to plain DQN at as many samples per step, and its bottleneck."""
    above = {case.name: case.reference(cases[0]) for case in cases}
    for name in dict.fromkeys([*above.values(), *above]):
        runs: list[Throughput] = found.get(f"{name}, run", [])
        if not runs:
            continue
        with report.measuring("end to end"):
            limit = f"{above[name]}, run" if above.get(name, name) != name else None
            known = limit if any(row.name == limit for row in report.rows) else None
            samples = f"{runs[0].samples_per_step:.3g} samples a step"
            speeds = [each.steps_per_second for each in runs]
            report.add(f"{name}, run", "steps/s", speeds, limit=known, note=samples)
        report.note(f"{name}, run: {runs[-1].summary['limit']['sentence']}")
