"""Real runs of `launch.py` at steady state, between two boundaries, with their records checked.

Only whole records count. They include env steps, inference, updates, resets, commits and checkpoint segments. The run
is started from the command line and stopped with a signal, as a user would do it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.harness import CannotRun, WrongResult
from ringside.command.train import configuration
from ringside.records.metrics import read_metrics
from ringside.run import planning
from shared.config.method_declaration import method_declaration
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import Config, unused_settings
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE, LOGS, METRICS_FILE, SUMMARY_FILE
from shared.machine.subprocesses import die_with, terminate_and_reap
from shared.memory.plan import Plan
from shared.process.signals import stack_dumps_held_back
from shared.root import ROOT
from shared.text import flag_in, words_of

LEARNING_STARTS = "5_000"
"""Default steps before the first update; the 50,000 of Nature DQN would only cost waiting time."""
NEVER_LEARNS = ("--learning-starts", "40_000_000", "--total-steps", "50_000_000")
"""Flags of a run that stays before its first update for the whole measurement."""
OURS = ("--game", "--run-dir", "--resume")
"""Flags that the benchmark sets itself."""
ROUND_STEPS, ROUND_TICKS = 1_000, 10
"""Least steps and ticks of a round on a CPU, so that several rounds fit into a measurement."""
WARM_RECORDS = 1
"""Records before the clock starts, in which caches fill and threads start."""
SILENT_SECONDS = 600.0
"""Longest time without a new record."""
POLL_SECONDS = 0.5
"""Interval between two reads of the records."""
END_SECONDS = 300.0
"""Longest time between SIGTERM and the end of a run."""


# --- settings


def plan_of(words: Sequence[str]) -> Plan:
    """The plan of a run with these flags. Raises `ConfigError`."""
    return planning.check(configuration(words))


def has_flag(words: Sequence[str], *flags: str) -> bool:
    """True if the words set one of these options."""
    return any(flag_in(word) in flags for word in words)


def measured_words(game: str, words: Sequence[str], *more: str) -> list[str]:
    """Flags of a measured run: `more`, then a user's `words`, over an early start of learning and short rounds.

    On a CPU a round has a thousand steps, which are few seconds. Shorter rounds have more barriers and commits and the
    same work per step, so they make no run faster. Rounds of `alternate`, of an on-policy method and of workers are a
    part of what is learned, so they stay.

    Raises:
        ConfigError: a setting is invalid, or is one of `OURS`.
    """
    for flag in OURS:
        if has_flag(words, flag):
            raise ConfigError(f"{flag} after -- is given by the benchmark itself: omit it.")
    named = [] if has_flag([*more, *words], "--env") else ["--game", game]
    plan = plan_of([*named, *more, *words])
    config, schedule = plan.config, plan.run_schedule
    early = short = list[str]()
    if "learning_starts" not in unused_settings(method_declaration(config.algorithm.method)):
        early = ["--learning-starts", LEARNING_STARTS]
    least = max(ROUND_STEPS, ROUND_TICKS * schedule.envs)
    free = config.learn.schedule in ("concurrent", "free") and not plan.method.on_policy
    if free and config.machine.device == "cpu" and schedule.round_steps > least:
        short = ["--round-steps", str(least)]
    return [*named, *early, *short, *more, *words]


def acting_words(plan: Plan, words: Sequence[str]) -> list[str]:
    """Flags of a run that acts as the plan of `words` does and never learns; of an on-policy one, as DQN."""
    if not plan.method.on_policy:
        return [*words, *NEVER_LEARNS]
    config = plan.config
    left_out = {"workers", *(("game", "protocol") if config.play.env else ())}
    play = {name: value for name, value in vars(config.play).items() if name not in left_out}
    machine = {
        name: value for name, value in vars(config.machine).items() if not name.startswith(("learner", "replay"))
    }
    network = {"network": config.learn.network, "normalize": config.algorithm.normalize}
    learn = {"round_steps": config.learn.round_steps, "replay_size": 100_000}
    return [*words_of(plugin=config.run.plugin, **play, **machine, **network, **learn), *NEVER_LEARNS]


# --- programs


@contextmanager
def running(
    command: Sequence[str], output: Path, end_seconds: float = END_SECONDS, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in the directory of this repository; on every exit from the block, end it and all that it started.

    It gets SIGTERM, also if this process is killed, and SIGKILL after `end_seconds`.

    Args:
        command: the program and its arguments.
        output: file to which all that it prints is appended.
        end_seconds: longest time between SIGTERM and its end.
        environment: further variables.
    """
    with open(output, "ab") as file, stack_dumps_held_back():
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
    try:
        yield process
    finally:
        terminate_and_reap(process, end_seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def read_logs(run_dir: Path) -> str:
    """Text of the logs of a run, by name; the run directory itself may be removed afterwards."""
    logs = sorted((run_dir / LOGS).glob("*.log"))
    return "".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)


# --- a run


@dataclass(frozen=True)
class Throughput:
    """Throughput of a run between two boundaries."""

    steps_per_second: float
    played_per_second: float
    """Steps/s without resets; a run counts resets as steps, the bare emulator does not."""
    samples_per_step: float
    episodes: int
    """Episodes that ended, each followed by a reset."""
    first_step_seconds: float
    """From the start of the command to the first record."""
    summary: dict[str, Any]
    """Summary that the run wrote."""


def measure_run(words: Sequence[str], seconds: float, *, learning: bool = True) -> Throughput:
    """Run `launch.py` until it has worked for `seconds` at steady state, stop it gracefully, and read its records.

    Args:
        words: flags of `launch.py`.
        seconds: least time of the measured records, two or more.
        learning: count only records with updates; otherwise only records without.

    Raises:
        CannotRun: the run rejected its settings, or committed no round within `SILENT_SECONDS`.
        WrongResult: the run failed, or did not do the work that its settings ask for.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as scratch:
        run_dir, output = Path(scratch) / "run", Path(scratch) / "output"
        command = [sys.executable, "launch.py", "--plain", *words, "--run-dir", str(run_dir)]
        begun = time.monotonic()
        with running(command, output) as process:
            first_at = _watch(process, run_dir, seconds, learning=learning)
        if process.returncode:
            said = (output.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            if process.returncode == ConfigError.exit_code:
                raise CannotRun(said)
            sys.stderr.write(read_logs(run_dir))
            raise WrongResult(f"{' '.join(command[1:])} ended with code {process.returncode}: {said}")
        schedule = make_run_schedule(Config.from_json(json.loads((run_dir / CONFIG_FILE).read_text())))
        summary = json.loads((run_dir / SUMMARY_FILE).read_text())
        counting = _counting(_records(run_dir), learning=learning)
    if counting and counting[-1]["steps"] < (counting[-1]["round"] + schedule.record_rounds) * schedule.round_steps:
        counting.pop()  # the stop ended its record early
    if len(counting) < 2:
        raise CannotRun(f"{' '.join(command[1:])} ended before two records could be measured.")
    check_records(schedule, counting)
    first, last = counting[0], counting[-1]
    steps, took = last["steps"] - first["steps"], last["seconds"] - first["seconds"]
    valid = [record["valid_steps"] for record in counting[1:]]
    played = steps if None in valid else sum(valid)
    return Throughput(
        steps_per_second=steps / took,
        played_per_second=played / took,
        samples_per_step=(last["updates"] - first["updates"]) * schedule.update_samples / steps,
        episodes=last["episodes"] - first["episodes"],
        first_step_seconds=first_at - begun,
        summary=summary,
    )


def check_records(schedule: RunSchedule, records: Sequence[dict[str, Any]]) -> None:
    """Raise `WrongResult` unless consecutive records show the work that the settings ask for."""
    for previous, record in pairwise(records):
        before = previous["round"] + schedule.record_rounds
        stop = before + schedule.record_rounds
        asked = {
            "round": before,
            "steps": stop * schedule.round_steps,
            "updates": schedule.updates_before(stop),
            "updates of the round": schedule.updates_before(stop) - schedule.updates_before(before),
        }
        speeds = record["updates_per_second"] / record["steps_per_second"]
        updates = round((record["steps"] - record["round"] * schedule.round_steps) * speeds)
        done = {name: record.get(name, updates) for name in asked}
        if done != asked:
            raise WrongResult(f"A record says {done} where {asked} was asked for.")
    valid = [record["valid_steps"] for record in records[1:]]
    if None not in valid:
        # A reset tick follows the end of each episode; at the edges of the time, one of the two may lie outside.
        ends = records[-1]["episodes"] - records[0]["episodes"]
        resets = records[-1]["steps"] - records[0]["steps"] - sum(valid)
        if abs(resets - ends) > schedule.envs:
            raise WrongResult(f"{ends} episodes ended, but there were {resets} resets.")


def _watch(process: subprocess.Popen[bytes], run_dir: Path, seconds: float, *, learning: bool) -> float:
    """Wait until enough records are there or the run ends; return the time of the first (CLOCK_MONOTONIC)."""
    known, first_at = 0, 0.0
    last_progress = time.monotonic()
    while process.poll() is None:
        records, now = _records(run_dir), time.monotonic()
        if len(records) > known:
            first_at = first_at or now
            known, last_progress = len(records), now
        elif now - last_progress > SILENT_SECONDS:
            raise CannotRun(f"The run made no round within {SILENT_SECONDS:.0f} s.")
        counting = _counting(records, learning=learning)
        if len(counting) > 1 and counting[-1]["seconds"] - counting[0]["seconds"] >= seconds:
            break
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    return first_at


def _records(run_dir: Path) -> list[dict[str, Any]]:
    """Records of rounds written so far that hold their time."""
    path = run_dir / METRICS_FILE
    if not path.exists():
        return []
    return [record for record in read_metrics(path) if record["kind"] == "round" and "seconds" in record]


def _counting(records: Sequence[dict[str, Any]], *, learning: bool) -> list[dict[str, Any]]:
    """Records with updates, or without, less those of the warm-up."""
    return [record for record in records if (record["samples_per_step"] > 0) is learning][WARM_RECORDS:]
