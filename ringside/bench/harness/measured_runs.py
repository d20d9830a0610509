"""A real run of `launch.py` at steady state: its speed between two boundaries, and what it says of itself, checked.

Whole rounds are counted, and with them playing, inference, updates, resets, commits and the segments of checkpoints. A
run goes through the command line, as a user starts it, and is stopped as a user stops it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.bench.harness.gpu_use import GpuSampler, GpuUse
from ringside.bench.harness.programs import last_log_line, read_logs, running
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.recording.metrics import read_metrics
from shared.config import validate
from shared.config.resolve import device_of
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE, Config
from shared.errors import ConfigError
from shared.memory.run_memory import Plan
from shared.text import flag_in

WARM_ROUNDS = 1
"""Rounds before the clock starts: caches fill, threads start."""
LEARNING_STARTS = 5_000
"""Steps before the first update, unless other words say otherwise; those of Nature DQN would be waited for."""
NEVER_LEARNS = ("--learning-starts", "40_000_000", "--total-steps", "50_000_000")
"""Words of a run that plays as it would before learning, for as long as anybody measures."""
OURS = ("--game", "--run-dir", "--resume")
"""Flags that a benchmark gives itself."""
ROUNDS = 5
"""Rounds that should fit into the time of a measurement."""
LEAST_ROUND_TICKS = 10
"""Shorter rounds would be mostly barrier."""
PROBE_SHARE = 0.1
"""Share of the seconds of a measurement for choosing the length of its rounds."""
BARE_SHARE = 0.25
"""Share of the seconds of a measurement for the bare emulator beside it, which is steady from its start."""
SILENT_SECONDS = 600.0
"""Longest time without a new round."""
LOOK_SECONDS = 0.5
"""Between two looks at the records."""
REFUSED = 2
"""Exit code of `launch.py` for a setting that cannot work."""
ROLES = ("learner", "inference", "actors")
"""Roles whose busy share the records of rounds hold."""


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
    """Share of the steps that were resets; None: not known."""
    first_step_seconds: float
    """From the command to the first committed round's record."""
    busy: dict[str, float]
    """Busy shares by role, where known."""
    gpu: GpuUse | None
    """None: there is none, or it does not tell."""
    summary: dict[str, Any]
    """The run's own, of all its time."""

    @property
    def played_per_second(self) -> float:
        """Steps/s without resets, which the clock of a run counts and that of a bare emulator does not."""
        return self.steps_per_second * (1 - (self.reset_share or 0.0))


def make_plan(game: str, words: Sequence[str]) -> Plan:
    """Return the plan of a measured run with these words.

    Raises:
        ConfigError: a setting cannot work.
        CannotRun: its device is not here.
    """
    from ringside import planning
    from ringside.tasks.train import configuration

    for word in words:
        if flag_in(word) in OURS:
            raise ConfigError(f"{flag_in(word)} after -- is given by the benchmark itself: omit it.")
    config = configuration(["--game", game, "--learning-starts", str(LEARNING_STARTS), *words])
    validate.settings(config)
    try:
        device_of(config.machine.device)
    except ConfigError as error:
        raise CannotRun(str(error)) from error
    return planning.check(config)


def rounds_that_fit(plan: Plan, words: Sequence[str], seconds: float, pace: float) -> list[str]:
    """The words with shorter rounds, if fewer than `ROUNDS` of those in `plan` fit into `seconds` at `pace` steps/s.

    Only downwards, and never where the words say how long a round is: a shorter round means more barriers and commits,
    and no less work a step, so it makes no run faster. With alternate a round is short as it is.
    """
    run_schedule = plan.run_schedule
    fixed = sets_round_steps(words) or plan.config.learn.schedule == "alternate"
    if fixed or pace * seconds / ROUNDS >= run_schedule.round_steps:
        return list(words)
    steps = max(LEAST_ROUND_TICKS * run_schedule.envs, int(pace * seconds / ROUNDS) // 100 * 100)
    return [*words, "--round-steps", str(min(steps, run_schedule.round_steps))]


def sets_round_steps(words: Sequence[str]) -> bool:
    """True if the words set the length of a round."""
    return any(flag_in(word) == "--round-steps" for word in words)


def note_rounds(
    report: Report, own: Plan, measured: Plan, seconds: float, others: str = "", theirs: Plan | None = None
) -> None:
    """Note how long the rounds of a measurement are, and why; and those of `others`, where `theirs` are not as long."""
    steps, usual = measured.run_schedule.round_steps, own.run_schedule.round_steps
    shorter = f" instead of {usual:,}, so that {ROUNDS} fit into {seconds:g} s. Shorter rounds save no work."
    report.note(f"Rounds have {steps:,} steps" + (shorter if steps < usual else "."))
    if theirs is not None and theirs.run_schedule.round_steps != steps:
        report.note(f"Those of {others} have {theirs.run_schedule.round_steps:,}.")


def measure(game: str, seconds: float, words: Sequence[str], *, learning: bool = True) -> Throughput:
    """Run `launch.py` until it has worked for `seconds` after its start, stop it gracefully, and read what it did.

    Args:
        game: as in ale-py.
        seconds: of whole rounds, at least two.
        words: further flags of `launch.py`; they win over what is given here.
        learning: count rounds with updates only; else only those without.

    Raises:
        CannotRun: the run was refused, with its sentence, or made no round within `SILENT_SECONDS`.
        WrongResult: it failed, or did other work than it was asked for.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as scratch:
        run_dir = Path(scratch) / "run"
        command = ["launch.py", "--plain", "--game", game, "--learning-starts", str(LEARNING_STARTS), *words]
        begun = time.monotonic()
        with _running([*command, "--run-dir", str(run_dir)], run_dir, Path(scratch) / "errors") as process:
            first_at, gpu = _watch(process, run_dir, seconds, learning=learning)
        config = _config(run_dir)
        summary = json.loads((run_dir / SUMMARY_FILE).read_text())
        counting = _counting(_rounds(run_dir), learning=learning)
    if len(counting) < 2:
        raise CannotRun(f"{' '.join(command)} ended before two rounds could be measured.")
    first_round, *measured = counting
    run_schedule = make_run_schedule(config)
    check(run_schedule, first_round, measured, summary)
    last = measured[-1]
    steps, took = last["steps"] - first_round["steps"], last["seconds"] - first_round["seconds"]
    updates = sum(_updates(record, run_schedule) for record in measured)
    valid = [record["valid_steps"] for record in measured]
    return Throughput(
        command="python " + " ".join(command),
        steps_per_second=steps / took,
        updates_per_second=updates / took,
        samples_per_step=updates * config.learn.batch_size / steps,
        steps=steps,
        seconds=took,
        episodes=last["episodes"] - first_round["episodes"],
        reset_share=None if None in valid else 1 - sum(valid) / steps,
        first_step_seconds=first_at - begun,
        busy=_busy(measured),
        gpu=gpu,
        summary=summary,
    )


def check(
    run_schedule: RunSchedule, before: dict[str, Any], measured: Sequence[dict[str, Any]], summary: dict[str, Any]
) -> None:
    """Raise `WrongResult` unless the records are those of the work that was asked for.

    Args:
        sizes: of the run.
        before: the record of the round before the first that is measured.
        measured: the records that are; consecutive.
        summary: the run's own.
    """
    step = run_schedule.snapshot_rounds
    for former, record in zip([before, *measured], measured, strict=False):
        stop = record["round"] + step
        if record["round"] != former["round"] + step or record["steps"] != stop * run_schedule.round_steps:
            raise WrongResult(
                f"Round {record['round']} after round {former['round']} ended with {record['steps']:,} steps; rounds "
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
        # A tick that is no state to act from follows each end of an episode; those at the edges count on one side only.
        ends = measured[-1]["episodes"] - before["episodes"]
        resets = sum(step * run_schedule.round_steps - int(count) for count in valid)
        if abs(resets - ends) > run_schedule.envs:
            raise WrongResult(f"{ends} episodes ended, but there were {resets} resets.")
    if summary["steps"] != summary["rounds"] * run_schedule.round_steps or summary["steps"] < measured[-1]["steps"]:
        raise WrongResult(f"The summary says {summary['steps']:,} steps in {summary['rounds']} rounds.")


@contextmanager
def _running(command: Sequence[str], run_dir: Path, errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of `launch.py`, ended with the block; raises when it failed, and shows what its processes wrote."""
    with running(command, errors) as process:
        yield process
    if process.returncode:
        said = last_log_line(errors)
        if process.returncode == REFUSED:
            raise CannotRun(said)
        sys.stderr.write(read_logs(run_dir))
        raise WrongResult(f"{' '.join(command)} ended with code {process.returncode}: {said}")


def _watch(
    process: subprocess.Popen[bytes], run_dir: Path, seconds: float, *, learning: bool
) -> tuple[float, GpuUse | None]:
    """Wait until there are enough rounds, or the run ends.

    Returns:
        The moment at which the first record was seen (CLOCK_MONOTONIC), and the use of the GPU in the measured time.
    """
    known, news_at = 0, time.monotonic()
    first_at = news_at
    with GpuSampler() as sampler:
        while process.poll() is None:
            rounds, now = _rounds(run_dir), time.monotonic()
            if len(rounds) > known:
                first_at = first_at if known else now
                known, news_at = len(rounds), now
            elif now - news_at > SILENT_SECONDS:
                raise CannotRun(f"The run made no round within {SILENT_SECONDS:.0f} s.")
            counting = _counting(rounds, learning=learning)
            if counting:
                sampler.begin(_config(run_dir).machine.device)
            if len(counting) > 1 and counting[-1]["seconds"] - counting[0]["seconds"] >= seconds:
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
        return first_at, sampler.use()


def _config(run_dir: Path) -> Config:
    return Config.from_json(json.loads((run_dir / CONFIG_FILE).read_text()))


def _rounds(run_dir: Path) -> list[dict[str, Any]]:
    """The records of rounds that were written so far, and whose time is known."""
    path = run_dir / METRICS_FILE
    if not path.exists():
        return []
    return [record for record in read_metrics(path) if record["kind"] == "round" and "seconds" in record]


def _counting(rounds: Sequence[dict[str, Any]], *, learning: bool) -> list[dict[str, Any]]:
    """The rounds with, or without, updates, but for those that warm up."""
    return [record for record in rounds if (record["samples_per_step"] > 0) is learning][WARM_ROUNDS:]


def _updates(record: dict[str, Any], run_schedule: RunSchedule) -> int:
    """The updates that the learner counted in the rounds of a record."""
    steps = run_schedule.snapshot_rounds * run_schedule.round_steps
    return round(steps * record["updates_per_second"] / record["steps_per_second"])


def _busy(measured: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The roles' busy shares over all rounds, weighted with their time."""
    times = [1 / record["steps_per_second"] for record in measured]
    shares = {}
    for role in ROLES:
        values = [record.get(f"{role}_busy") for record in measured]
        if None not in values:
            shares[role] = sum(value * time_ for value, time_ in zip(values, times, strict=True)) / sum(times)
    return shares
