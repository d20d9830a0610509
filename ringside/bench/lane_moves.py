"""One core slowed down: lanes that move to faster actors against lanes that stay.

Three runs with the same steps and seed are interleaved. The first has no competing process. The others have a busy
process on the core of the first actor; in one, lanes stay with their actors, in the other they move. Each actor has one
core. The small network and an update every 400 steps make emulation the bottleneck. Each run is measured from its
second learning round to its end, so the time until lanes have moved counts. All runs must end with the same weights.
Words after -- are flags of launch.py:

  python launch.py bench balance --seconds 60 -- --actors 4
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread

import psutil

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.interleaved import Contender, measure_interleaved
from ringside.bench.harness.measured_plans import make_plan, require_game
from ringside.bench.harness.measured_runs import Throughput, measure_run
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.system_parts.emulator import bare_speeds
from shared.machine.facts import usable_cores
from shared.machine.subprocesses import kill_and_reap

EMULATION_BOUND = ("--network", "small", "--train-every", "400")
ROUNDS = 40
"""Rounds of a run; lanes move at some of their boundaries."""
SHARE_OF_BARE = 0.5
"""Assumed speed of a run as a share of the bare emulators' speed; it sets the length of the run."""
PROBE_SHARE = 0.1
"""Share of the measuring time for the speed of the bare emulators."""
POLL_SECONDS = 0.2
"""Interval between two searches for actors that are not yet pinned to one core."""

ALONE, STAYING, MOVING = "nothing beside it", "a slowed core, lanes stay", "a slowed core, lanes move"


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench balance`."""

    seconds: float = 40.0
    """Approximate seconds of the run without a competing process."""


def measure(options: Options, report: Report) -> None:
    """Measure the three runs, interleaved. Raises `ConfigError` before anything runs if a setting is invalid."""
    words = [*EMULATION_BOUND, *options.words]
    with report.measuring("settings"):
        plan = make_plan(options.game, words)
        require_game(plan)
        if plan.actors == 1:
            words += ["--actors", "2"]
            plan = make_plan(options.game, words)
        if usable_cores() < 2:
            raise CannotRun("There is one core only; none can be slower than another.")
    if report.missing:
        return
    pace = SHARE_OF_BARE * sum(bare_speeds(options.game, PROBE_SHARE * options.seconds, plan.actors))
    # Each round needs an update even after rounding to ticks: rounds without updates are not measured.
    round_steps = max(
        10 * plan.run_schedule.envs, 2 * plan.config.learn.train_every, int(pace * options.seconds) // ROUNDS
    )
    words += ["--round-steps", str(round_steps), "--learning-starts", str(2 * round_steps)]
    words += ["--total-steps", str(ROUNDS * round_steps)]
    weights = set[str]()

    def contender(name: str, *more: str, slowed: bool) -> Contender:
        return Contender(name, partial(_run, options.game, [*words, *more], weights, slowed=slowed))

    found = measure_interleaved(
        report,
        [
            contender(ALONE, slowed=False),
            contender(STAYING, "--balance", "off", slowed=True),
            contender(MOVING, slowed=True),
        ],
        options.repeats,
    )
    for name, runs in found.items():
        moves = ", ".join(str(each.summary["lane_moves"]) for each in runs)
        speeds = [each.steps_per_second for each in runs]
        limit = ALONE if name != ALONE and ALONE in found else None
        report.add(name, "steps/s", speeds, limit=limit, note=f"lanes moved: {moves}")
    report.note(f"{plan.actors} actors; {ROUNDS} rounds of {round_steps:,} steps.")
    if weights and not report.wrong:
        report.note("All runs ended with the same weights.")


def _run(game: str, words: list[str], weights: set[str], *, slowed: bool) -> Throughput:
    """Measure a run to its end. Raises `WrongResult` if its weights differ from those of earlier runs."""
    with _cores(slowed=slowed):
        result = measure_run(game, float("inf"), words)
    weights.add(result.summary["weights_sha256"])
    if len(weights) > 1:
        raise WrongResult("It ended with other weights than the runs before.")
    return result


@contextmanager
def _cores(*, slowed: bool) -> Iterator[None]:
    """For the duration of the block, pin each started actor to one core; if `slowed`, the first one gets a rival."""
    ended = Event()
    thread = Thread(target=_pin_actors, args=(ended, slowed))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pin_actors(ended: Event, slowed: bool) -> None:
    """Pin new actors until `ended` is set; the rival has the nice value of its actor, so it takes half the core."""
    cores, rival = sorted(os.sched_getaffinity(0)), None
    try:
        while not ended.wait(POLL_SECONDS):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):  # the process has ended
                    program, _, number = " ".join(child.cmdline()).strip().rpartition(" ")
                    if program != "ringside actor":
                        continue
                    if len(child.cpu_affinity()) > 1:
                        child.cpu_affinity([cores[int(number) % len(cores)]])
                    if slowed and rival is None and number == "0":
                        rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                        psutil.Process(rival.pid).cpu_affinity(child.cpu_affinity())
                        psutil.Process(rival.pid).nice(child.nice())
    finally:
        if rival is not None:
            kill_and_reap(rival)
