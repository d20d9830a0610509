"""Speeds by the performance model: for more cores, a GPU and nodes; and runs here that check it.

The parts of a run are measured first: an actor alone and one on every core, answers, updates and commits, the wake-up
of a process. From their times the model of docs/model.md predicts steps/s. The check is part of the command: real runs
with one actor and with two, with learning and without, and with more actors than cores, interleaved with the parts,
since machines drift. The goal is an error below a tenth.

--from FILE takes the times of an earlier --json instead, and measures nothing. The times are kept for `doctor`, which
shows the expected speed before a run, and for runs, which show it beside their own (~/.cache/ringside). Words after --
are flags of launch.py:

  python launch.py bench model --json model.json --picture model.png -- --preset quick
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.interleaved import Contender, measure_interleaved, numbers_in_list
from ringside.bench.harness.measured_plans import (
    NEVER_LEARNS,
    acting_words,
    game_unless_env,
    make_plan,
    require_no_actors,
    rounds_that_fit,
)
from ringside.bench.harness.measured_runs import Throughput, measure_run
from ringside.bench.harness.tables import CannotRun, Report
from ringside.bench.performance_model.part_times import Actors, Parts, actors, answering, learning
from ringside.bench.performance_model.published_scaling import CURVES
from ringside.bench.system_parts.round_trip import ring_seconds
from ringside.cluster.groups.parameters import ParameterCoding
from ringside.load.expectation import conditions, holds_for, run_shape
from ringside.tasks.train import configuration
from shared.config.resolve import Allocation, allocate
from shared.errors import ConfigError, FileError
from shared.files.result_files import require_writable
from shared.files.strict_json import read_json
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan
from shared.performance import known_times
from shared.performance.allocation import teams_of
from shared.performance.service_times import Link, RunShape, ServiceTimes, learning_on_counted_gpu, on_counted_gpu
from shared.performance.throughput_model import Prediction, core_seconds, predict
from shared.text import count

PROBE_SHARE = 0.2
"""Share of the measuring time for a first look at the parts, which chooses the lengths of rounds."""
ACTORS, ANSWERS, UPDATES, WAKE = "actors", "answers", "updates", "wake-up"
MICRO = 1e6
"""Microseconds of a second."""
PURE = frozenset({"step_spread", "update_overhead", "contention", "crowding", "parallel_share", "processors"})
"""Service times that are ratios or counts."""
OF_MACHINE = frozenset({"cpu", "cores", "gpus", "libraries"})
"""Conditions of service times in which --from may differ from this run."""
LINKS = {"1 GbE": 117e6, "10 GbE": 1.17e9}
"""Bytes/s of links between a head and its nodes."""
PICTURES = (".png", ".svg", ".pdf")
"""Suffixes that --picture may have."""


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench model`."""

    seconds: float = 10.0
    """Seconds of whole rounds of each run, and half of them for each part."""
    cores: str = "1,2,4,8,16,32,64,128"
    """Numbers of cores to predict for, separated by commas."""
    nodes: str = "1,2,4,8"
    """Numbers of nodes to predict for, separated by commas."""
    node_cores: int = 16
    """Cores of each of them, and of their head."""
    check: bool = True
    """Check the model against runs."""
    from_: Path | None = None
    """Take the service times of this file, which an earlier --json wrote."""
    picture: Path | None = None
    """Draw steps/s against cores into this file: .png, .svg or .pdf."""


@dataclass(frozen=True)
class Checked:
    """A run that checks the model."""

    name: str
    words: Sequence[str]
    shape: RunShape
    learns: bool


def measure(options: Options, report: Report) -> None:
    """Measure or read the parts, predict, and check. Raises `ConfigError` before anything runs for invalid options."""
    counts, nodes = numbers_in_list(options.cores, "--cores"), numbers_in_list(options.nodes, "--nodes")
    require_no_actors(options.words)
    if options.picture is not None:
        require_writable("--picture", options.picture)
        if options.picture.suffix.lower() not in PICTURES:
            raise ConfigError(f"--picture {options.picture}: the suffix says the format; choose {', '.join(PICTURES)}.")
    with report.measuring("settings"):
        plan = make_plan(options.game, [*options.words, "--actors", "1"])
        if not holds_for(plan):
            raise CannotRun(
                "The model holds for runs with one learner and an inference server that computes as it does."
            )
    if report.missing:
        return
    report.conditions = conditions(plan)
    measured: dict[int, float] = {}
    found = _measured(options, plan, report, measured) if options.from_ is None else [times_in(options.from_, report)]
    if not found:
        return
    lines = _add_cores(options, report, plan, median_times(found), counts)
    _add_nodes(options, report, plan, median_times(found), nodes)
    _add_published(report)
    if options.picture is not None:
        from ringside.bench.performance_model.cores_picture import draw

        try:
            draw(options.picture, f"{plan.config.play.game}, by the model", lines, measured)
        except OSError as error:
            raise ConfigError(f"--picture {options.picture} cannot be written: {error.strerror}.") from error


# --- service times


def median_times(found: Sequence[ServiceTimes]) -> ServiceTimes:
    """Median of each service time."""
    return ServiceTimes.from_json(
        {name: statistics.median(each.to_json()[name] for each in found) for name in found[0].to_json()}
    )


def times_in(path: Path, report: Report) -> ServiceTimes:
    """Service times of a file that --json wrote: the medians of its rows. Note if they are of another machine.

    Args:
        report: the new one, with its conditions.

    Raises:
        ConfigError: there are none, or they were measured with other settings.
    """
    try:
        stored = read_json(path, follow=True)
        rows, theirs = {row["name"]: row["median"] for row in stored["rows"]}, stored["conditions"]
        times = ServiceTimes.from_json(
            {
                item.name: rows[item.name.replace("_", " ")] / (1 if item.name in PURE else MICRO)
                for item in fields(ServiceTimes)
            }
        )
        ours = json.loads(json.dumps(report.conditions, default=str))
        different = [name for name in ours if theirs[name] != ours[name]]
    except OSError as error:
        raise ConfigError(f"--from {path} cannot be read: {error.strerror}.") from error
    except (FileError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"--from {path} holds no service times: pass a file of `bench model --json`.") from error
    if settings := [name.replace("_", " ") for name in different if name not in OF_MACHINE]:
        raise ConfigError(f"--from {path} has times of other settings ({', '.join(settings)}): measure these anew.")
    if different:
        report.note(f"The service times are those of another machine or other libraries ({', '.join(different)}).")
    return times


def _measured(options: Options, plan: Plan, report: Report, measured: dict[int, float]) -> list[ServiceTimes]:
    """Service times of each repeat; adds them and the check. Adds the run with the usual actors to `measured`."""
    found: dict[str, list[Any]] = {}
    with report.noting("parts"), actors(plan, usable_cores()) as pool:
        with report.console.status("a first look at the parts ..."):
            probe = _probe(plan, pool, options.seconds * PROBE_SHARE)
        checked = list(_checked(options, plan, probe)) if options.check else []
        found = measure_interleaved(report, list(_contenders(options, plan, pool, checked)), options.repeats)
    names = (ACTORS, ANSWERS, UPDATES, WAKE)
    if any(name not in found for name in names):
        return []
    on_gpu = plan.config.machine.device != "cpu"
    with report.measuring("service times"):
        times = [
            Parts(playing, answers, updates, wake, usable_cores(), on_gpu).service_times()
            for playing, answers, updates, wake in zip(*(found[name] for name in names), strict=True)
        ]
        _add_times(report, times)
        _keep(report, plan, median_times(times))
        errors = _add_check(report, times, checked, found)
        config = configuration([*game_unless_env(options.game, options.words), *options.words])
        usual = allocate(config, usable_cores(), on_cpu=not on_gpu).actors
        for each in checked:
            if each.learns and each.name in errors and each.shape.actors == usual:
                measured[usable_cores()] = report.row(each.name).median
        return times
    return []


def _keep(report: Report, plan: Plan, times: ServiceTimes) -> None:
    """Keep the times for doctor and for runs, unless other programs were at work."""
    load, cores = report.machine["load_average"][0], usable_cores()
    if load < cores:
        known_times.keep(known_times.key_of(conditions(plan)), times)
    else:
        report.note(f"These times are not kept: the load was {load:.1f} on {count(cores, 'core')} before.")


def _probe(plan: Plan, pool: Actors, seconds: float) -> ServiceTimes:
    parts = Parts(
        pool.measure(seconds),
        answering(plan, seconds),
        learning(plan, seconds, pool),
        ring_seconds(seconds),
        usable_cores(),
        plan.config.machine.device != "cpu",
    )
    return parts.service_times()


def _checked(options: Options, plan: Plan, probe: ServiceTimes) -> Iterator[Checked]:
    """Runs with one actor and with two, without learning and with it; and with more actors than cores."""
    game, lanes = options.game, plan.run_schedule.lanes
    cases = [(number, learns) for number in (1, 2) for learns in (False, True)] + [(usable_cores() + 1, False)]
    for number, learns in dict.fromkeys((min(number, lanes), learns) for number, learns in cases):
        words = [*options.words, "--actors", str(number)]
        own = make_plan(game, words)
        if not learns:
            words = acting_words(own) if plan.method.on_policy else [*words, *NEVER_LEARNS]
            own = make_plan(game, words)
        pace = predict(probe, run_shape(own, learns=learns)).steps_per_second
        words = rounds_that_fit(own, words, options.seconds, pace)
        name = f"{count(number, 'actor')}, {'learning' if learns else 'no learning'}"
        yield Checked(name, words, run_shape(make_plan(game, words), learns=learns), learns)


def _contenders(options: Options, plan: Plan, pool: Actors, checked: Sequence[Checked]) -> Iterator[Contender]:
    """Parts and runs of each repeat; parts come first, so that an interrupt leaves the service times."""
    seconds = options.seconds / 2
    yield Contender(ACTORS, partial(pool.measure, seconds))
    yield Contender(WAKE, partial(ring_seconds, min(1.0, seconds)))
    yield Contender(ANSWERS, partial(answering, plan, seconds / 2))
    yield Contender(UPDATES, partial(learning, plan, seconds, pool))
    for each in checked:
        yield Contender(each.name, partial(_run, options, each))


def _run(options: Options, each: Checked) -> Throughput:
    return measure_run(options.game, options.seconds, each.words, learning=each.learns)


# --- rows


def _add_times(report: Report, times: Sequence[ServiceTimes]) -> None:
    """Add a row for each service time, in microseconds."""
    for item in fields(ServiceTimes):
        pure = item.name in PURE
        values = [getattr(each, item.name) * (1 if pure else MICRO) for each in times]
        report.add(item.name.replace("_", " "), "" if pure else "us", values)


def _add_check(
    report: Report, times: Sequence[ServiceTimes], checked: Sequence[Checked], found: Mapping[str, list[Any]]
) -> dict[str, float]:
    """Add each run, what the model says of it, and the core time of both; return the relative errors.

    An error is the worse of two: the median within repeats, and that from median times, which `doctor` has.
    """
    errors = {}
    for each in checked:
        if each.name not in found:
            continue
        runs: list[Throughput] = found[each.name]
        speeds = [run.steps_per_second for run in runs]
        predictions = [predict(repeat, each.shape) for repeat in times[: len(speeds)]]
        ratios = [one.steps_per_second / speed for one, speed in zip(predictions, speeds, strict=True)]
        of_medians = predict(median_times(times), each.shape).steps_per_second / statistics.median(speeds)
        report.add(each.name, "steps/s", speeds)
        report.add(
            f"{each.name}, by the model",
            "steps/s",
            [one.steps_per_second for one in predictions],
            limit=each.name,
            ratios=ratios,
            note=f"{of_medians - 1:+.0%} from median times; {predictions[-1].reason}",
        )
        errors[each.name] = max(abs(statistics.median(ratios) - 1), abs(of_medians - 1))
        _add_core_time(report, times, each, runs)
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        report.note(
            f"The model is off by {errors[worst]:.1%} at most ({worst}): the worse of the median of the ratios within "
            "repeats and the ratio of medians."
        )
    return errors


def _add_core_time(report: Report, times: Sequence[ServiceTimes], each: Checked, runs: Sequence[Throughput]) -> None:
    """Add the core time of a step of a run. Beside it: its roles, and the model's, which knows no scribe."""
    parts = {
        role: statistics.median(MICRO * run.cores.get(role, 0.0) / run.steps_per_second for run in runs)
        for role in sorted({role for run in runs for role in run.cores})
    }
    model = statistics.median(MICRO * core_seconds(repeat, each.shape) for repeat in times[: len(runs)])
    report.add(
        f"{each.name}, core time of a step",
        "us",
        [MICRO * sum(run.cores.values()) / run.steps_per_second for run in runs],
        note=f"{', '.join(f'{role} {spent:,.0f}' for role, spent in parts.items())}; by the model {model:,.0f}",
    )


def _add_cores(
    options: Options, report: Report, plan: Plan, times: ServiceTimes, counts: Sequence[int]
) -> dict[str, dict[int, Prediction]]:
    """Add predictions by number of cores, without a GPU and with one, with the choices of `resolve` for each."""
    config = configuration([*game_unless_env(options.game, options.words), *options.words])
    here = run_shape(plan)
    gpu = times if here.on_gpu else on_counted_gpu(times)
    lines: dict[str, dict[int, Prediction]] = {}
    for kind, on_cpu, used in (("no GPU", True, times), ("one GPU", False, gpu)):
        if on_cpu and here.on_gpu:
            continue  # the times of a CPU's network are not known
        with report.measuring(kind):
            for cores in counts:
                choice = allocate(config, cores, on_cpu=on_cpu)
                shape = _shape_with(here, cores, choice, on_gpu=not on_cpu)
                found = predict(used, shape)
                lines.setdefault(kind, {})[cores] = found
                report.add(
                    f"{count(cores, 'core')}, {kind}",
                    "steps/s",
                    [found.steps_per_second],
                    note=f"{count(shape.actors, 'actor')}; {found.reason}",
                )
    if not here.on_gpu:
        report.note("With a GPU: times counted for an H200, not measured (docs/lab/2026-11-gpu.md).")
    return lines


def _shape_with(here: RunShape, cores: int, choice: Allocation, *, on_gpu: bool) -> RunShape:
    """The shape of the same run on so many cores."""
    return replace(
        here,
        cores=cores,
        on_gpu=on_gpu,
        actors=choice.actors,
        inference_batch=choice.inference_batch,
        inference_threads=choice.inference_threads,
        learner_threads=choice.learner_threads,
        teams=teams_of(choice.learner_shards),
    )


def _add_nodes(options: Options, report: Report, plan: Plan, times: ServiceTimes, nodes: Sequence[int]) -> None:
    """Add predictions for nodes that play for a head with a GPU, by link. Nodes answer on their own cores."""
    here = run_shape(plan)
    if here.on_gpu or here.alternates:
        return
    config = configuration([*game_unless_env(options.game, options.words), *options.words])
    used = learning_on_counted_gpu(times)
    version = ParameterCoding(plan).bytes
    with report.measuring("nodes"):
        for number in nodes:
            envs = here.inference_batch * number * -(-here.batches // number)  # whole cells for each node
            per_node = config.with_settings(envs=envs // number, learner_threads=1)
            choice = allocate(per_node, options.node_cores, on_cpu=True)
            shape = _shape_with(here, options.node_cores, choice, on_gpu=True)
            shape = replace(shape, envs=envs, nodes=number, parameter_bytes=version)
            for name, speed in LINKS.items():
                found = predict(used, replace(shape, link=Link(bytes_per_second=speed)))
                report.add(
                    f"{count(number, 'node')} of {count(options.node_cores, 'core')}, {name}",
                    "steps/s",
                    [found.steps_per_second],
                    note=f"{envs:,} envs; {found.reason}",
                )
    report.note(
        f"Nodes play for a head with a GPU; {version / 1e6:.1f} MB of parameters once a round, "
        f"{Link().step_bytes:.0f} bytes a step (docs/model.md)."
    )


def _add_published(report: Report) -> None:
    """Add the model's greatest error for each published curve."""
    with report.measuring("published"):
        for curve in CURVES:
            report.add(
                f"{curve.program}, {curve.machine}",
                "greatest error",
                [curve.greatest_error()],
                note=f"crowding {curve.times.crowding:.2f}",
            )
