"""Start cost of an actor, and private memory of a run's processes over time.

  start    CPU time of each actor, or process of workers, from its start to its first tick
  memory   private memory of each process (resident, not shared), read --repeats times, --seconds apart, starting with
           the second round that has updates

The benchmark starts a run. Or --run names the directory of a running one; then only memory is measured. Words after --
are flags of launch.py:

  python launch.py bench memory --repeats 60 --seconds 60 -- --actors 16 --preset quick
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.attached import AttachedRun, attached_run, lasting
from ringside.bench.harness.measured_plans import make_plan
from ringside.bench.harness.tables import CannotRun, Report
from ringside.watch.attach import attach, read_config
from shared.errors import ConfigError
from shared.memory.process_table import Role, process_name, process_title
from shared.memory.run_memory import Memory
from shared.text import count


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench memory`."""

    seconds: float = 10.0
    """Seconds between two readings of the memory."""
    repeats: int = 10
    """Number of readings."""
    run: Path | None = None
    """Directory of a running run, whose memory is read instead."""


def measure(options: Options, report: Report) -> None:
    """Measure both. Raises `ConfigError` before anything runs if a setting is invalid."""
    if options.run is not None:
        if options.words:
            raise ConfigError("--run names a run that is going on, which takes no flags: omit those after --.")
        with report.measuring("memory"):
            _attach_and_measure(options, options.run, report)
        return
    words = lasting(options.words)
    with report.measuring("settings"):
        make_plan(options.game, words)
    if report.missing:
        return
    with report.measuring("run"), attached_run(options.game, words) as run:
        with report.measuring("start"):
            starts = _starts(run)
            player = "a worker process" if run.memory.plan.player is Role.WORKER else "an actor"
            report.add(f"{player}'s start", "s", starts, note=f"processor time of {len(starts)}")
        with report.measuring("memory"):
            run.until_it_learns()
            _add_memory(options, run.memory, run.process, report)


def _attach_and_measure(options: Options, run_dir: Path, report: Report) -> None:
    """Measure the memory of a running run. Raises `CannotRun` if it has ended."""
    found = attach(run_dir, read_config(run_dir))
    if found is None:
        raise CannotRun(f"The run {run_dir} does not go on.")
    memory, live = found
    try:
        _add_memory(options, memory, psutil.Process(live.process), report)
    except psutil.NoSuchProcess:
        raise CannotRun(f"The run {run_dir} has ended.") from None
    finally:
        memory.arena.close()


def _starts(run: AttachedRun) -> list[float]:
    """CPU seconds of each process that plays when its first lane had played a tick."""
    board, plan = run.memory.board, run.memory.plan
    found: dict[int, float] = {}

    def all_play() -> bool:
        playing = set(board.lane_owner[board.lane_done.values > 0].tolist()) - found.keys()
        for child in psutil.Process(run.process.pid).children(recursive=True) if playing else ():
            with suppress(psutil.Error):  # the process has ended
                title = " ".join(child.cmdline()).strip()
                for actor in playing:
                    if title == process_title(process_name(plan.player, actor)):
                        times = child.cpu_times()
                        found[actor] = times.user + times.system
        return len(found) == plan.actors

    run.until(all_play)
    return [found[actor] for actor in range(plan.actors)]


def _add_memory(
    options: Options, memory: Memory, launcher: subprocess.Popen[bytes] | psutil.Process, report: Report
) -> None:
    """Read the private memory of every process repeatedly, and add a row for each."""
    readings = [memory.board.private_bytes.copy()]
    try:
        while len(readings) < options.repeats and _still_running(launcher, options.seconds):
            readings.append(memory.board.private_bytes.copy())
    except KeyboardInterrupt:
        report.interrupt()
    else:
        if len(readings) < options.repeats:
            report.missing["memory"] = f"The run ended after {len(readings)} of {count(options.repeats, 'reading')}."
    middle = readings[(len(readings) - 1) // 2]
    for process, added in enumerate(readings[-1] - middle):
        if readings[-1][process]:
            megabytes = [float(reading[process]) / 1e6 for reading in readings]
            note = f"the second half of the readings added {added / 1e6:.1f} MB"
            report.add(memory.plan.processes.name_of(process), "MB", megabytes, note=note)


def _still_running(launcher: subprocess.Popen[bytes] | psutil.Process, seconds: float) -> bool:
    """Wait up to `seconds` for the end of the run. Return True if it still runs."""
    try:
        launcher.wait(seconds)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return True
    return False
