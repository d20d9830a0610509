"""The jobs of the four systems that Ringside comes from, on this machine, beside their published figures.

  fast-dqn before, fast-dqn both    DQN with one env in turns, and with eight envs, concurrent and synchronized
  lapan before, lapan last          the first and the last rung of Lapan's ladder, in one process and in two
  a3c batched                       tensorpack's A3C-Gym: many envs, one batch of inference, one of training
  async dqn, async a3c              workers that compute gradients on copies of the network and apply them
  ringside dqn, ringside ppo        plain DQN with Ringside's defaults, and PPO, for comparison

`bench ladder` measures the first two systems in full and explains their rungs. Steps are actions of the agent, of four
frames. Published figures come from other machines, games and years, which the notes name: they are no target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from actors.envs.atari import game_name
from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.measured_runs import measure_run
from ringside.bench.harness.tables import Report
from ringside.bench.ladder import rungs as ladder
from shared.config.resolve import check_device_name
from shared.text import words_of

FAST_DQN = "fast-dqn (Daley & Amato, arXiv:2111.01264)"
LAPAN = "Lapan, Deep Reinforcement Learning Hands-On, chapter 9"
TENSORPACK = "batched A3C (tensorpack, A3C-Gym)"
ASYNC = "asynchronous gradients (Mnih et al. 2016, arXiv:1602.01783)"
OURS = "Ringside"


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench ancestors`."""

    only: str = "all"
    """Jobs to be measured, separated by commas."""
    game: str = "pong"
    """Game, as in ale-py."""
    seconds: float = 20.0
    """Seconds of one measurement, in whole rounds, after learning has begun."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Job:
    """One row of the table."""

    name: str
    system: str
    rung: str | None = None
    """The same job in `bench ladder`."""
    preset: str | None = None
    """Preset of the run, for a job that is no rung."""
    published: str = ""
    """Figure of its authors, with its source and machine."""


JOBS = (
    Job("fast-dqn before", FAST_DQN, rung="alternate-1", published="556 steps/s on a GTX 1080 (25 h for 50 M steps)"),
    Job(
        "fast-dqn both",
        FAST_DQN,
        rung="concurrent-sync-8",
        published="1,543 steps/s on a GTX 1080 (9 h for 50 M steps)",
    ),
    Job("lapan before", LAPAN, rung="gradients"),
    Job("lapan last", LAPAN, rung="parallel", published="Pong solved 3.5 times as fast as before (chapter 9)"),
    Job(
        "a3c batched",
        TENSORPACK,
        preset="a3c",
        published="6 to 10 batches of 128 a second, 768 to 1,280 steps/s, on a GPU and 12 cores or more (its README)",
    ),
    Job("async dqn", ASYNC, preset="dqn-async", published="90.5 steps/s, 500,000 steps of Pong (a tutorial's author)"),
    Job("async a3c", ASYNC, preset="a3c-async"),
    Job("ringside dqn", OURS, rung="ringside"),
    Job("ringside ppo", OURS, preset="ppo"),
)
SYSTEMS = (FAST_DQN, LAPAN, TENSORPACK, ASYNC, OURS)


def measure(options: Options, report: Report) -> None:
    """Measure all jobs, interleaved."""
    check_device_name(options.device)
    names = names_in_list(options.only, [job.name for job in JOBS], "--only")
    wanted = [job for job in JOBS if job.name in names]
    game = game_name(options.game)
    contenders = [Contender(job.name, _speed(job, options, game)) for job in wanted]
    reached = measure_interleaved(report, contenders, options.repeats)
    for system in SYSTEMS:
        there = [job for job in wanted if job.system == system and job.name in reached]
        with report.measuring(system):
            for job in there:
                first = there[0].name
                note = f"published: {job.published}" if job.published else ""
                limit = None if job.name == first else first
                report.add(job.name, "steps/s", reached[job.name], limit=limit, note=note)


def _speed(job: Job, options: Options, game: str) -> Callable[[], float]:
    """The measurement of a job: steps/s."""
    if job.rung is not None:
        (rung,) = (each for each in ladder.rungs() if each.name == job.rung)
        settings = ladder.Options(game=options.game, seconds=options.seconds, device=options.device)
        return partial(ladder.speed, rung, settings, game)
    words = words_of(preset=job.preset, device=options.device)
    return partial(_run_speed, game, options.seconds, words)


def _run_speed(game: str, seconds: float, words: Sequence[str]) -> float:
    return measure_run(game, seconds, words).steps_per_second
