"""Throughput of a real run of `launch.py` at steady state, between two boundaries, with its records checked.

Only whole rounds count. They include env steps, inference, updates, resets, commits and checkpoint segments. The run is
started from the command line and stopped with a signal, as a user would do it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringside.bench.harness.core_use import CoreSampler
from ringside.bench.harness.gpu_use import GpuSampler, GpuUse
from ringside.bench.harness.measured_plans import early_learning, game_unless_env
from ringside.bench.harness.programs import last_log_line, read_logs, running
from ringside.bench.harness.tables import CannotRun, WrongResult
from ringside.recording.metrics import read_metrics
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import Config
from shared.files.run_file_names import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE

WARM_ROUNDS = 1
"""Rounds before the clock starts, in which caches fill and threads start."""
SILENT_SECONDS = 600.0
"""Longest time without a new round."""
POLL_SECONDS = 0.5
"""Interval between two reads of the records."""
REFUSED = 2
"""Exit code of `launch.py` for an invalid setting."""
ROLES = ("learner", "inference", "actors", "workers")
"""Roles whose busy shares are in the records of rounds."""


@dataclass(frozen=True)
class Throughput:
    """Throughput of a run between two boundaries."""

    command: str
    steps_per_second: float
    updates_per_second: float
    samples_per_step: float
    steps: int
    seconds: float
    episodes: int
    """Episodes that ended, each followed by a reset."""
    reset_share: float | None
    """Share of the steps that were resets; None if unknown."""
    first_step_seconds: float
    """From the start of the command to the record of the first committed round."""
    busy: dict[str, float]
    """Busy shares by role, where known."""
    gpu: GpuUse | None
    """None without a GPU or without samples."""
    summary: dict[str, Any]
    """Summary that the run wrote, over its whole time."""
    cores: dict[str, float] = field(default_factory=dict)
    """Cores that each role used over the measured rounds."""

    @property
    def played_per_second(self) -> float:
        """Steps/s without resets; a run counts resets as steps, the bare emulator does not."""
        return self.steps_per_second * (1 - (self.reset_share or 0.0))


def measure_run(game: str, seconds: float, words: Sequence[str], *, learning: bool = True) -> Throughput:
    """Run `launch.py` until it has worked for `seconds` at steady state, stop it gracefully, and read its records.

    Args:
        game: name as in ale-py; without effect if `words` name an env.
        seconds: least time of the measured whole rounds, two or more.
        words: further flags of `launch.py`; they override those set here.
        learning: count only rounds with updates; otherwise only rounds without.

    Raises:
        CannotRun: the run rejected its settings, or committed no round within `SILENT_SECONDS`.
        WrongResult: the run failed, or did not do the work that its settings ask for.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as scratch:
        run_dir = Path(scratch) / "run"
        command = ["launch.py", "--plain", *game_unless_env(game, words), *early_learning(words), *words]
        begun = time.monotonic()
        with _running([*command, "--run-dir", str(run_dir)], run_dir, Path(scratch) / "errors") as process:
            first_at, gpu, cores = _watch(process, run_dir, seconds, learning=learning)
        config = _config(run_dir)
        summary = json.loads((run_dir / SUMMARY_FILE).read_text())
        counting = _counting(_rounds(run_dir), learning=learning)
    if len(counting) < 2:
        raise CannotRun(f"{' '.join(command)} ended before two rounds could be measured.")
    first_round, *measured = counting
    run_schedule = make_run_schedule(config)
    check_records(run_schedule, first_round, measured, summary)
    last = measured[-1]
    steps, took = last["steps"] - first_round["steps"], last["seconds"] - first_round["seconds"]
    updates = sum(_updates(record, run_schedule) for record in measured)
    valid = [record["valid_steps"] for record in measured]
    return Throughput(
        command="python " + " ".join(command),
        steps_per_second=steps / took,
        updates_per_second=updates / took,
        samples_per_step=updates * run_schedule.update_samples / steps,
        steps=steps,
        seconds=took,
        episodes=last["episodes"] - first_round["episodes"],
        reset_share=None if None in valid else 1 - sum(valid) / steps,
        first_step_seconds=first_at - begun,
        busy=_busy(measured),
        gpu=gpu,
        summary=summary,
        cores=cores,
    )


def check_records(
    run_schedule: RunSchedule, before: dict[str, Any], measured: Sequence[dict[str, Any]], summary: dict[str, Any]
) -> None:
    """Raise `WrongResult` unless the records show the work that the settings ask for.

    Args:
        run_schedule: schedule of the run.
        before: record of the round before the first measured one.
        measured: records of the measured rounds, consecutive.
        summary: summary that the run wrote.
    """
    step = run_schedule.record_rounds
    for previous, record in zip([before, *measured], measured, strict=False):
        stop = min(record["round"] + step, run_schedule.rounds)
        if record["round"] != previous["round"] + step or record["steps"] != stop * run_schedule.round_steps:
            raise WrongResult(
                f"Round {record['round']} after round {previous['round']} ended with {record['steps']:,} steps; rounds "
                f"have {run_schedule.round_steps:,}."
            )
        asked, done = (
            run_schedule.updates_before(stop) - run_schedule.updates_before(record["round"]),
            _updates(record, run_schedule),
        )
        if done != asked or record["updates"] != run_schedule.updates_before(stop):
            raise WrongResult(
                f"Round {record['round']} did {done:,} updates instead of {asked:,}, and {record['updates']:,} in all "
                f"instead of {run_schedule.updates_before(stop):,}."
            )
    if None not in (valid := [record["valid_steps"] for record in measured]):
        # A reset tick follows the end of each episode; at the edges of the time, one of the two may lie outside.
        ends = measured[-1]["episodes"] - before["episodes"]
        resets = sum(step * run_schedule.round_steps - int(count) for count in valid)
        if abs(resets - ends) > run_schedule.envs:
            raise WrongResult(f"{ends} episodes ended, but there were {resets} resets.")
    if summary["steps"] != summary["rounds"] * run_schedule.round_steps or summary["steps"] < measured[-1]["steps"]:
        raise WrongResult(f"The summary says {summary['steps']:,} steps in {summary['rounds']} rounds.")


@contextmanager
def _running(command: Sequence[str], run_dir: Path, errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of `launch.py` that ends with the block; if it failed, print its logs and raise."""
    with running(command, errors) as process:
        yield process
    if process.returncode:
        message = last_log_line(errors)
        if process.returncode == REFUSED:
            raise CannotRun(message)
        sys.stderr.write(read_logs(run_dir))
        raise WrongResult(f"{' '.join(command)} ended with code {process.returncode}: {message}")


def _watch(
    process: subprocess.Popen[bytes], run_dir: Path, seconds: float, *, learning: bool
) -> tuple[float, GpuUse | None, dict[str, float]]:
    """Wait until enough rounds are recorded or the run ends.

    Returns:
        Time at which the first record appeared (CLOCK_MONOTONIC), and in the measured time the use of GPU and cores.
    """
    known, last_progress = 0, time.monotonic()
    first_at, cores = last_progress, CoreSampler(process.pid)
    with GpuSampler() as sampler:
        while process.poll() is None:
            rounds, now = _rounds(run_dir), time.monotonic()
            if len(rounds) > known:
                first_at = first_at if known else now
                known, last_progress = len(rounds), now
            elif now - last_progress > SILENT_SECONDS:
                raise CannotRun(f"The run made no round within {SILENT_SECONDS:.0f} s.")
            counting = _counting(rounds, learning=learning)
            if counting:
                sampler.begin(_config(run_dir).machine.device)
                cores.begin()
            if len(counting) > 1 and counting[-1]["seconds"] - counting[0]["seconds"] >= seconds:
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
        return first_at, sampler.use(), cores.use()


def _config(run_dir: Path) -> Config:
    return Config.from_json(json.loads((run_dir / CONFIG_FILE).read_text()))


def _rounds(run_dir: Path) -> list[dict[str, Any]]:
    """Records of rounds written so far that hold their time."""
    path = run_dir / METRICS_FILE
    if not path.exists():
        return []
    return [record for record in read_metrics(path) if record["kind"] == "round" and "seconds" in record]


def _counting(rounds: Sequence[dict[str, Any]], *, learning: bool) -> list[dict[str, Any]]:
    """Rounds with updates, or without, less the warm-up rounds."""
    return [record for record in rounds if (record["samples_per_step"] > 0) is learning][WARM_ROUNDS:]


def _updates(record: dict[str, Any], run_schedule: RunSchedule) -> int:
    """Number of updates in the rounds of a record, from the speeds that the learner recorded."""
    steps = record["steps"] - record["round"] * run_schedule.round_steps
    return round(steps * record["updates_per_second"] / record["steps_per_second"])


def _busy(measured: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Busy share of each role over all rounds, weighted by their time."""
    times = [1 / record["steps_per_second"] for record in measured]
    shares = {}
    for role in ROLES:
        values = [record.get(f"{role}_busy") for record in measured]
        if None not in values:
            shares[role] = sum(value * time_ for value, time_ in zip(values, times, strict=True)) / sum(times)
    return shares
