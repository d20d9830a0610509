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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside import planning
from ringside.bench.harness.gpu_use import GpuSampler, GpuUse
from ringside.bench.harness.programs import last_log_line, read_logs, running
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.recording.metrics import read_metrics
from ringside.tasks.train import configuration
from shared.config.checks import validate
from shared.config.method_declaration import method_declaration
from shared.config.resolve import device_of
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import Config, unused_settings
from shared.errors import ConfigError
from shared.files.run_files import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE
from shared.memory.run_memory import Plan
from shared.text import flag_in, words_of

WARM_ROUNDS = 1
"""Rounds before the clock starts, in which caches fill and threads start."""
LEARNING_STARTS = 5_000
"""Default steps before the first update; the 50,000 of Nature DQN would only cost waiting time."""
NEVER_LEARNS = ("--learning-starts", "40_000_000", "--total-steps", "50_000_000")
"""Arguments of a run that stays before its first update for the whole measurement."""
OURS = ("--game", "--run-dir", "--resume")
"""Flags that the benchmark sets itself."""
ROUNDS = 5
"""Rounds that should fit into one measurement."""
LEAST_ROUND_TICKS = 10
"""Shorter rounds would be mostly barrier."""
PROBE_SHARE = 0.1
"""Share of the measuring time spent on choosing the round length."""
WORKER_PACE = 300.0
"""Steps/s of a core with workers, by which their spans are made to fit into a measurement."""
BARE_SHARE = 0.25
"""Share of the measuring time for the bare emulator, which is at steady state from its start."""
SILENT_SECONDS = 600.0
"""Longest time without a new round."""
LOOK_SECONDS = 0.5
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

    @property
    def played_per_second(self) -> float:
        """Steps/s without resets; a run counts resets as steps, the bare emulator does not."""
        return self.steps_per_second * (1 - (self.reset_share or 0.0))


def make_plan(game: str, words: Sequence[str]) -> Plan:
    """Return the plan of a measured run with these arguments.

    Raises:
        ConfigError: a setting is invalid.
        CannotRun: its device is not available.
    """
    for word in words:
        if flag_in(word) in OURS:
            raise ConfigError(f"{flag_in(word)} after -- is given by the benchmark itself: omit it.")
    config = configuration([*game_unless_env(game, words), *early_learning(words), *words])
    validate.settings(config)
    try:
        device_of(config.machine.device)
    except ConfigError as error:
        raise CannotRun(str(error)) from error
    return planning.check(config)


def game_unless_env(game: str, words: Sequence[str]) -> list[str]:
    """Arguments that name the game of a run of these `words`; none if they name an env, which excludes a game."""
    return [] if any(flag_in(word) == "--env" for word in words) else ["--game", game]


def early_learning(words: Sequence[str]) -> list[str]:
    """Arguments with which a run of these `words` learns early; none if its method learns from the first round on."""
    from ringside.tasks.train import configuration

    unused = unused_settings(method_declaration(configuration(words).algorithm.method))
    return [] if "learning_starts" in unused else ["--learning-starts", str(LEARNING_STARTS)]


def rounds_that_fit(plan: Plan, words: Sequence[str], seconds: float, pace: float) -> list[str]:
    """The arguments, with shorter rounds if fewer than `ROUNDS` rounds fit into `seconds` at `pace` steps/s.

    Rounds are never lengthened, and a length in `words` is kept. Shorter rounds have more barriers and commits and the
    same work per step, so they make no run faster. Rounds of the schedule `alternate` are short already. Those of an
    on-policy method or of workers are a part of what is learned; these get more frequent snapshots, which come with
    records.
    """
    run_schedule = plan.run_schedule
    if run_schedule.method.on_policy or run_schedule.workers:
        span = int(pace * seconds / ROUNDS)
        given = any(flag_in(word) == "--snapshot-every-steps" for word in words)
        shorter = not given and span < run_schedule.snapshot_rounds * run_schedule.round_steps
        least = run_schedule.gradient_ticks * run_schedule.envs
        return [*words, "--snapshot-every-steps", str(max(span, least))] if shorter else list(words)
    fixed = sets_round_steps(words) or plan.config.learn.schedule == "alternate"
    if fixed or pace * seconds / ROUNDS >= run_schedule.round_steps:
        return list(words)
    steps = max(LEAST_ROUND_TICKS * run_schedule.envs, int(pace * seconds / ROUNDS) // 100 * 100)
    return [*words, "--round-steps", str(min(steps, run_schedule.round_steps))]


def acting_words(plan: Plan) -> list[str]:
    """Arguments of a run that acts as an on-policy method does and never learns: DQN before its first update."""
    config, machine = plan.config, plan.config.machine
    play = {name: getattr(config.play, name) for name in ("protocol", "envs", "lane_envs")}
    network = {"network": config.learn.network, "normalize": config.algorithm.normalize}
    roles = ("actors", "device", "precision", "inference_threads", "inference_batch")
    given = {**play, **network, **{name: getattr(machine, name) for name in roles}}
    return [
        *words_of(**given),
        "--round-steps",
        str(config.learn.round_steps),
        "--replay-size",
        "100_000",
        *NEVER_LEARNS,
    ]


def sets_round_steps(words: Sequence[str]) -> bool:
    """True if the arguments set the length of a round."""
    return any(flag_in(word) == "--round-steps" for word in words)


def note_rounds(
    report: Report, own: Plan, measured: Plan, seconds: float, others: str = "", theirs: Plan | None = None
) -> None:
    """Note the round length of a measurement and the reason; also that of `others` if `theirs` differs."""
    steps, usual = measured.run_schedule.round_steps, own.run_schedule.round_steps
    shorter = f" instead of {usual:,}, so that {ROUNDS} fit into {seconds:g} s. Shorter rounds save no work."
    report.note(f"Rounds have {steps:,} steps" + (shorter if steps < usual else "."))
    if theirs is not None and theirs.run_schedule.round_steps != steps:
        report.note(f"Those of {others} have {theirs.run_schedule.round_steps:,}.")


def measure(game: str, seconds: float, words: Sequence[str], *, learning: bool = True) -> Throughput:
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
        samples_per_step=updates * run_schedule.update_samples / steps,
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
    """Raise `WrongResult` unless the records show the work that the settings ask for.

    Args:
        run_schedule: schedule of the run.
        before: record of the round before the first measured one.
        measured: records of the measured rounds, consecutive.
        summary: summary that the run wrote.
    """
    step = run_schedule.snapshot_rounds
    for previous, record in zip([before, *measured], measured, strict=False):
        stop = record["round"] + step
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
) -> tuple[float, GpuUse | None]:
    """Wait until enough rounds are recorded or the run ends.

    Returns:
        Time at which the first record appeared (CLOCK_MONOTONIC), and GPU use in the measured time.
    """
    known, last_progress = 0, time.monotonic()
    first_at = last_progress
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
            if len(counting) > 1 and counting[-1]["seconds"] - counting[0]["seconds"] >= seconds:
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
        return first_at, sampler.use()


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
    steps = run_schedule.snapshot_rounds * run_schedule.round_steps
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
