"""Learner and inference on a GPU: updates by setting, answers beside a busy learner.

Parts, for --parts:

  latency  how long inference takes to answer all envs: alone, and beside a learner in another process that updates
           without pause, by the most updates in one launch (--graph-updates), in turns and under MPS
  learner  updates a second of a learner alone, by precision, place of the replay, determinism and length of a launch

Settings that must not change a number, place and length, are compared by the parameters that they lead to, and answers
with the first answer, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.tables import CannotRun, Report
from ringside.bench.network_parts.beside import Answers, BackgroundLearner, Updates, answers, updates
from shared.config.resolve import check_device_name, device_of, resolve
from shared.config.settings import Config, ResolvedConfig
from shared.errors import ConfigError
from shared.process import mps

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
    """Emulators in one answer."""
    window_steps: int = 100_000
    """Steps in the replay; 7 KB each."""
    device: str = "cuda"
    """cuda or cuda:N."""


def measure(options: Options, report: Report) -> None:
    """All parts that were asked for, if there is a GPU."""
    check_device_name(options.device)
    bodies = {"latency": _latency, "learner": _learner}
    for part in names_in_list(options.parts, PARTS, "--parts"):
        with report.measuring(part):
            bodies[part](options, report, _config(options))


def _config(options: Options) -> ResolvedConfig:
    """The configuration of a run on the GPU. Raises `CannotRun` where there is none."""
    try:
        device = device_of(options.device)
    except ConfigError as error:
        raise CannotRun(str(error).partition("; say --device")[0].rstrip(".") + ".") from error
    if device == "cpu":
        raise CannotRun("--device cpu is no GPU.")
    window = {"replay_size": options.window_steps, "round_steps": min(10_000, options.window_steps // 2)}
    return resolve(Config().with_settings(device=device, envs=options.envs, actors=1, learning_starts=1_000, **window))


def _learner(options: Options, report: Report, config: ResolvedConfig) -> None:
    """Updates a second of each case, and that those which may not differ do not."""
    first: dict[tuple[Any, ...], str] = {}

    def one(name: str) -> Updates:
        settings = CASES[name]
        told = updates(config.with_settings(**settings), options.seconds)
        if settings.get("deterministic") != "off":
            told.check(first, tuple(item for item in settings.items() if item[0] not in SAME_NUMBERS))
        return told

    reached = measure_interleaved(report, [Contender(name, partial(one, name)) for name in CASES], options.repeats)
    for name, values in reached.items():
        limit = USUAL if name != USUAL and USUAL in reached else None
        report.add(f"learner, {name}", "updates/s", [each.per_second for each in values], limit=_row(limit))


def _row(name: str | None) -> str | None:
    return f"learner, {name}" if name else None


def _latency(options: Options, report: Report, config: ResolvedConfig) -> None:
    """Median and 99th percentile of an answer's time, and what the learner beside it reaches."""

    def beside(length: int, environment: Callable[[], dict[str, str]]) -> Answers:
        with BackgroundLearner(config.with_settings(graph_updates=length), environment()) as learner:
            return answers(config, options.seconds, environment(), learner)

    def contenders(how: str, environment: Callable[[], dict[str, str]]) -> list[Contender]:
        return [
            Contender(f"beside a learner {how}, {length} in a launch", partial(beside, length, environment))
            for length in LENGTHS
        ]

    runs = [Contender("alone", partial(answers, config, options.seconds, {})), *contenders("in turns", dict)]
    service = mps.Service()
    try:
        with report.measuring("latency under MPS"):
            try:
                service.start(mps.client(int(config.machine.device.partition(":")[2])))
            except mps.MpsError as error:
                raise CannotRun(str(error)) from error
            runs += contenders("under MPS", lambda: service.environment)
        reached = measure_interleaved(report, runs, options.repeats)
    finally:
        service.quit()
    for name, values in reached.items():
        told = [each.beside for each in values]
        note = f"{sum(told) / len(told):,.0f} updates/s beside" if any(told) else ""
        report.add(f"answer {name}, median", "us", [each.median_us for each in values], note=note)
        report.add(f"answer {name}, 99%", "us", [each.late_us for each in values])
