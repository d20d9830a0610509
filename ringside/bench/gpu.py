"""Learner and inference on a GPU: update speed by setting, and inference latency with a busy learner.

Parts, for --parts:

  latency  inference latency for all envs: alone, and with a learner in another process that updates without pause, by
           updates in one launch (--graph-updates), with time slicing ("in turns"), or under MPS where its daemon runs
  learner  updates/s of a learner alone, by precision, place of the replay buffer, determinism and updates in a launch

Place and updates in a launch must not change a number, so the resulting parameters are compared bit for bit. Answers of
the inference server are compared with its first answer, also bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.tables import CannotRun, Report
from ringside.bench.network_parts.beside import Answers, BackgroundLearner, Updates, answers, updates
from shared.config.resolve import check_device_name, device_of, resolve, why_missing
from shared.config.settings import Config, ResolvedConfig
from shared.errors import ConfigError
from shared.machine import facts
from shared.machine.facts import cuda_devices

PARTS = ("latency", "learner")
LENGTHS = (1, 2, 4, 8)
"""Values of --graph-updates."""
USUAL = "as it comes"
CASES: dict[str, dict[str, str | int]] = {
    USUAL: {},
    "replay on the host": {"replay_on": "host"},
    **{f"{length} updates in a launch": {"graph_updates": length} for length in LENGTHS[:-1]},
    "no graphs": {"graph_updates": 0},
    "not deterministic": {"deterministic": "off"},
    "fp32": {"precision": "fp32"},
    "bf16": {"precision": "bf16"},
    "bf16, not deterministic": {"precision": "bf16", "deterministic": "off"},
}
"""Learners: settings that differ from the defaults."""
SAME_NUMBERS = ("replay_on", "graph_updates")


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench gpu`."""

    parts: str = "all"
    """Parts to be measured, separated by commas."""
    seconds: float = 3.0
    """Seconds for each figure of each repeat; a process starts before each, which takes longer."""
    envs: int = 96
    """Envs in one inference batch."""
    window_steps: int = 100_000
    """Steps in the replay buffer; 7 KB each."""
    device: str = "cuda"
    """cuda or cuda:N."""


def measure(options: Options, report: Report) -> None:
    """Measure the requested parts, if there is a GPU."""
    check_device_name(options.device)
    bodies = {"latency": _latency, "learner": _learner}
    for part in names_in_list(options.parts, PARTS, "--parts"):
        with report.measuring(part):
            bodies[part](options, report, _config(options))


def _config(options: Options) -> ResolvedConfig:
    """Configuration of a run on the GPU. Raises `CannotRun` without a GPU."""
    try:
        device = device_of(options.device)
    except ConfigError as error:
        # Without the advice to take a CPU, which is no remedy here.
        raise CannotRun(f"There is no device {options.device}: {why_missing(cuda_devices())}.") from error
    if device == "cpu":
        raise CannotRun("--device cpu is no GPU.")
    window = {"replay_size": options.window_steps, "round_steps": min(10_000, options.window_steps // 2)}
    return resolve(Config().with_settings(device=device, envs=options.envs, actors=1, learning_starts=1_000, **window))


def _learner(options: Options, report: Report, config: ResolvedConfig) -> None:
    """Measure updates/s of each case, and check that cases with the same numbers have the same parameters."""
    first: dict[tuple[Any, ...], str] = {}

    def one(name: str) -> Updates:
        settings = CASES[name]
        measured = updates(config.with_settings(**settings), options.seconds)
        if settings.get("deterministic") != "off":
            measured.check(first, tuple(item for item in settings.items() if item[0] not in SAME_NUMBERS))
        return measured

    reached = measure_interleaved(report, [Contender(name, partial(one, name)) for name in CASES], options.repeats)
    for name, values in reached.items():
        limit = USUAL if name != USUAL and USUAL in reached else None
        report.add(f"learner, {name}", "updates/s", [each.per_second for each in values], limit=_row(limit))


def _row(name: str | None) -> str | None:
    return f"learner, {name}" if name else None


def _latency(options: Options, report: Report, config: ResolvedConfig) -> None:
    """Median and 99th percentile of inference latency, with the speed of the concurrent learner."""

    def with_learner(length: int) -> Answers:
        with BackgroundLearner(config.with_settings(graph_updates=length), {}) as learner:
            return answers(config, options.seconds, {}, learner)

    how = "under MPS" if facts.mps_serves() else "in turns"
    runs = [Contender("alone", partial(answers, config, options.seconds, {}))]
    runs += [
        Contender(f"beside a learner {how}, {length} in a launch", partial(with_learner, length)) for length in LENGTHS
    ]
    reached = measure_interleaved(report, runs, options.repeats)
    for name, values in reached.items():
        speeds = [each.beside for each in values]
        note = f"{sum(speeds) / len(speeds):,.0f} updates/s beside" if any(speeds) else ""
        report.add(f"answer {name}, median", "us", [each.median_us for each in values], note=note)
        report.add(f"answer {name}, 99%", "us", [each.late_us for each in values])
