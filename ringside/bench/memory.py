"""An actor's start, and the memory of a run's processes over time.

  start    processor time of each actor, from its birth to its first tick
  memory   what each process has for itself (resident, not shared), looked at --repeats times, --seconds apart,
           beginning with the second round that has updates

A run is started for it, or --run names the directory of one that goes on, whose start is over. Words after -- are
flags of launch.py:

  python launch.py bench memory --repeats 60 --seconds 60 -- --actors 16 --preset quick
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import tyro

from ringside.bench.bench_command import Common
from ringside.bench.harness.attached import LASTING, AttachedRun, attached_run
from ringside.bench.harness.interleaved import INTERRUPTED
from ringside.bench.harness.measured_runs import make_plan
from ringside.bench.harness.tables import CannotRun, Report
from ringside.watch.attach import attach, read_config
from shared.errors import ConfigError
from shared.memory.process_table import Role, process_name
from shared.memory.run_memory import Memory


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench memory`."""

    words: tyro.conf.Positional[tuple[str, ...]] = ()
    """Flags of launch.py, after --."""
    game: str = "breakout"
    """Atari game of the run that is started."""
    seconds: float = 10.0
    """Between two looks at the memory."""
    repeats: int = 10
    """Number of readings."""
    run: Path | None = None
    """Directory of a run that goes on, to be looked at instead."""


def measure(options: Options, report: Report) -> None:
    """Measure both. Raises `ConfigError` before anything runs when a setting cannot work."""
    if options.run is not None:
        if options.words:
            raise ConfigError("--run names a run that goes on, which takes no flags: omit those after --.")
        with report.measuring("memory"):
            _look_at(options, options.run, report)
        return
    words = [*LASTING, *options.words]
    with report.measuring("settings"):
        make_plan(options.game, words)
    if report.missing:
        return
    with report.measuring("run"), attached_run(options.game, words) as run:
        with report.measuring("start"):
            starts = _starts(run)
            report.add("an actor's start", "s", starts, note=f"processor time; {len(starts)} actors")
        with report.measuring("memory"):
            run.until_it_learns()
            _add_memory(options, run.memory, run.process, report)


def _look_at(options: Options, run_dir: Path, report: Report) -> None:
    """Measure the memory of a run that is under way. Raises `CannotRun` if it has ended."""
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
    """Seconds of processor time that each actor had used when its first lane had played a tick."""
    board, actors = run.memory.board, run.memory.plan.actors
    found: dict[int, float] = {}

    def all_play() -> bool:
        playing = set(board.lane_owner[board.lane_done.values > 0].tolist()) - found.keys()
        for child in psutil.Process(run.process.pid).children(recursive=True) if playing else ():
            with suppress(psutil.Error):  # it has ended
                title = " ".join(child.cmdline()).strip()
                for actor in playing:
                    if title == f"ringside {process_name(Role.ACTOR, actor)}":
                        times = child.cpu_times()
                        found[actor] = times.user + times.system
        return len(found) == actors

    run.until(all_play)
    return [found[actor] for actor in range(actors)]


def _add_memory(
    options: Options, memory: Memory, launcher: subprocess.Popen[bytes] | psutil.Process, report: Report
) -> None:
    """Look at what every process says of its memory, and add a row for each."""
    looks = [memory.board.private_bytes.copy()]
    try:
        while len(looks) < options.repeats and _goes_on(launcher, options.seconds):
            looks.append(memory.board.private_bytes.copy())
    except KeyboardInterrupt:
        report.missing[INTERRUPTED] = "It was interrupted."
    else:
        if len(looks) < options.repeats:
            report.missing["memory"] = f"The run ended after {len(looks)} looks of {options.repeats}."
    middle = looks[(len(looks) - 1) // 2]
    for process, added in enumerate(looks[-1] - middle):
        if looks[-1][process]:
            megabytes = [float(look[process]) / 1e6 for look in looks]
            note = f"the second half of the looks added {added / 1e6:.1f} MB"
            report.add(memory.plan.processes.name_of(process), "MB", megabytes, note=note)


def _goes_on(launcher: subprocess.Popen[bytes] | psutil.Process, seconds: float) -> bool:
    """Wait so long, or until the run has ended; whether it goes on."""
    try:
        launcher.wait(seconds)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return True
    return False
