"""The classical comparisons of faster DQN variants, rebuilt from Ringside's parts.

Rungs of Lapan's ladder (Deep Reinforcement Learning Hands-On, ch. 9), for --only:

  gradients          one process, one env, Gymnasium's preprocessing, autograd left on in inference
  one-env            autograd off
  three-envs         three envs in one inference batch; training batches three times as large, a third as many
  parallel           one env in one process, training in another; batches four times as large
  light-three-envs   three-envs with our frames instead of Gymnasium's preprocessing
  light-parallel     parallel with our frames
  ringside           Ringside's defaults: many envs, actors on all cores

and of fast-dqn's two-by-two (Daley & Amato, arXiv:2111.01264), N being 1, 2, 4 or 8 envs, in processes up to the cores:

  alternate-N        steps, then their updates; one inference batch per env
  alternate-sync-N   the same, with all envs in one batch
  concurrent-N       steps and updates in parallel, acting with the target network; one inference batch per env
  concurrent-sync-N  the same, with all envs in one batch

With --async, the rungs of asynchronous gradients instead (Mnih et al. 2016), N being 1, 2, 4, 8 or 16 workers:

  async-N            A3C without a lock, in processes up to the cores
  ordered-N          the same in rounds of gradients
  a3c, impala        actor-critics on batches, with the same network

Rungs in one process run serial.py of this folder, whose network is made of PyTorch layers. The others are runs of
launch.py, `parallel` with --schedule free. All sample 8 transitions per step and train plain DQN, with the other
settings of the preset quick. Lapan trains on 32 transitions after every step, and leaves autograd on for the target
network too. Every rung here updates with our engine, and publishes parameters as a run does. fast-dqn acts with the
target network even where it alternates; we act with the online one. On a GPU, inference does not wait for a full batch.

Shares are ratios to the first rung of a table. With --solve every rung also learns until the mean raw return of its
last hundred training episodes reaches --bound; the time counts from the command. Lapan's scripts stop at 17; his
settings for Pong name 18.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.envs.atari import game_name
from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.measured_plans import WORKER_PACE, game_unless_env, make_plan, rounds_that_fit
from ringside.bench.harness.measured_runs import measure_run
from ringside.bench.harness.programs import json_result
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.ladder.solve import Learned, solve_run
from shared.config.presets.replay_presets import QUICK
from shared.config.resolve import check_device_name
from shared.machine import facts
from shared.text import words_of

LAPAN = "Lapan's ladder"
FAST_DQN = "fast-dqn's two-by-two"
ASYNC = "Asynchronous gradients"
FAST_ENVS = (1, 2, 4, 8)
ASYNC_WORKERS = (1, 2, 4, 8, 16)
PLAIN_DQN: dict[str, Any] = {"double": False, "n_step": 1, "learning_rate": 1e-4}
"""Settings of both tables; the learning rate is Lapan's."""
ENDLESS_STEPS = 50_000_000
"""Upper limit of the steps of a run that stops once it has solved its game."""
QUICKLY = ("--learning-starts", "512", "--replay-size", "20_000")
"""Options that shorten a measurement without changing its speed."""
START_SECONDS = 300.0
"""Longest time until the clock of a serial rung starts, even on a busy machine."""
PUBLISHED = (
    "Published for fast-dqn, 50 million steps on a GTX 1080: 25 hours before, 9 hours with both ideas (the abstract of "
    "arXiv:2111.01264); that is 556 and 1,543 steps/s."
)


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench ladder`."""

    only: str = "all"
    """Rungs to be measured, separated by commas."""
    async_: bool = False
    """Measure workers with asynchronous gradients beside actor-critics on batches, instead of both other tables."""
    game: str = "pong"
    """Game, as in ale-py; with --solve, --bound must fit this game."""
    seconds: float = 20.0
    """Seconds of one measurement, in whole rounds, after learning has begun."""
    round_steps: int = 1_024
    """Steps between two changes of the target network."""
    train_every: int = 4
    """Steps for each 32 transitions that are trained on; 1 in Lapan's book."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    solve: bool = False
    """Also measure the time that each rung takes to solve the game."""
    bound: float = 18.0
    """Mean raw return of the last hundred training episodes that counts as solved."""
    solve_minutes: float = 60.0
    """Minutes after which a rung that has not solved the game is stopped."""


@dataclass(frozen=True)
class Rung:
    """One line of a table."""

    name: str
    table: str
    words: Sequence[str]
    """Flags of launch.py, in addition to those of all rungs."""
    larger: int = 1
    """Factor for the batch size and for the steps between two updates."""
    serial: bool = False
    """True if the rung is one process instead of a run."""
    gradients: bool = False
    """True if autograd stays on in inference."""
    wrapped: bool = False
    """True if Gymnasium's preprocessing replaces our frames."""


def rungs() -> list[Rung]:
    """Both tables, top to bottom."""
    serial = words_of(schedule="alternate", envs=1, lane_envs=1, actors=1)
    three = words_of(schedule="alternate", envs=3, lane_envs=1, actors=1)
    parallel = words_of(schedule="free", envs=1, lane_envs=1, actors=1)
    found = [
        Rung("gradients", LAPAN, serial, serial=True, gradients=True, wrapped=True),
        Rung("one-env", LAPAN, serial, serial=True, wrapped=True),
        Rung("three-envs", LAPAN, three, larger=3, serial=True, wrapped=True),
        Rung("parallel", LAPAN, parallel, larger=4, wrapped=True),
        Rung("light-three-envs", LAPAN, three, larger=3, serial=True),
        Rung("light-parallel", LAPAN, parallel, larger=4),
        Rung("ringside", LAPAN, ()),
    ]
    for envs in FAST_ENVS:
        for schedule in ("alternate", "concurrent"):
            for synchronized in (False, True) if envs > 1 else (False,):
                name = f"{schedule}-{'sync-' if synchronized else ''}{envs}"
                actors, batch = min(envs, facts.usable_cores()), envs if synchronized else 1
                words = words_of(schedule=schedule, envs=envs, lane_envs=1, actors=actors, inference_batch=batch)
                found.append(Rung(name, FAST_DQN, words))
    return found


def async_rungs() -> list[Rung]:
    """The table of --async, top to bottom."""
    found = []
    for schedule in ("async", "ordered"):
        for workers in ASYNC_WORKERS:
            actors = min(workers, facts.usable_cores())
            words = words_of(preset="a3c-async", schedule=schedule, workers=workers, actors=actors)
            found.append(Rung(f"{schedule}-{workers}", ASYNC, words))
    return found + [Rung(preset, ASYNC, words_of(preset=preset, network="a3c")) for preset in ("a3c", "impala")]


def measure(options: Options, report: Report) -> None:
    """Measure the speed of all rungs, then the time to solve if requested."""
    check_device_name(options.device)
    known = async_rungs() if options.async_ else rungs()
    names = names_in_list(options.only, [rung.name for rung in known], "--only")
    wanted = [rung for rung in known if rung.name in names]
    game = game_name(options.game)
    contenders = [Contender(rung.name, partial(speed, rung, options, game)) for rung in wanted]
    reached = measure_interleaved(report, contenders, options.repeats)
    for table in (LAPAN, FAST_DQN, ASYNC):
        there = [rung.name for rung in wanted if rung.table == table and rung.name in reached]
        with report.measuring(table):
            for name in there:
                report.add(name, "steps/s", reached[name], limit=there[0] if name != there[0] else None)
    if any(rung.table == FAST_DQN for rung in wanted):
        report.note(PUBLISHED)
    if options.solve and not report.interrupted:
        _solve_all(wanted, options, game, report)


def speed(rung: Rung, options: Options, game: str) -> float:
    """Steps/s of a rung."""
    if rung.table == ASYNC:
        words = _words(rung, options, game)
        pace = WORKER_PACE * facts.usable_cores()
        fitted = rounds_that_fit(make_plan(game, words), words, options.seconds, pace)
        return measure_run(game, options.seconds, fitted).steps_per_second
    words = [*_words(rung, options, game), *QUICKLY]
    if not rung.serial:
        return measure_run(game, options.seconds, words).steps_per_second
    flags = ["--seconds", str(options.seconds)]
    result = _serial(rung, flags, [*game_unless_env(game, words), *words], options.seconds)
    every = rung.larger * options.train_every
    if abs(result["updates"] - result["steps"] / every) > 1:
        raise WrongResult(
            f"{result['updates']} updates were done in {result['steps']} steps, one every {every} asked for."
        )
    return float(result["steps"] / result["seconds"])


def _serial(rung: Rung, flags: Sequence[str], words: Sequence[str], seconds: float) -> dict[str, Any]:
    """Result of ringside/bench/ladder/serial.py."""
    gradients = ["--gradients"] if rung.gradients else []
    command = [sys.executable, "-m", "ringside.bench.ladder.serial", *flags, *gradients, "--", *words]
    result = json_result(command, seconds + START_SECONDS)
    if "wrong" in result:
        raise WrongResult(result["wrong"])
    return result


def _words(rung: Rung, options: Options, game: str) -> list[str]:
    """Flags of launch.py for a rung, except the game; raises `CannotRun` if its preprocessing is not installed."""
    if rung.wrapped and importlib.util.find_spec("cv2") is None:
        raise CannotRun("Gymnasium's preprocessing needs OpenCV, which is not installed: make install.")
    if rung.table == ASYNC:
        return [*rung.words, *words_of(device=options.device)]
    every, batch = rung.larger * options.train_every, rung.larger * QUICK.learn.batch_size
    shared = words_of(
        preset="quick",
        **PLAIN_DQN,
        device=options.device,
        round_steps=options.round_steps,
        snapshot_every_steps=options.round_steps,
        train_every=every,
        batch_size=batch,
    )
    return [*shared, *rung.words, *(["--env", f"ringside.bench.ladder.wrapped:{game}"] if rung.wrapped else [])]


# --- time to solve the game


def _solve_all(wanted: Sequence[Rung], options: Options, game: str, report: Report) -> None:
    """Measure the time to solve of each rung, one after the other, with one seed for each repeat."""
    for rung in wanted:
        with report.measuring(f"{rung.name}, solved"):
            taken = [_solve(rung, options, game, seed) for seed in range(1, options.repeats + 1)]
            report.add(
                f"{rung.name}, solved",
                "minutes",
                [learned.seconds / 60 for learned in taken],
                note=f"{min(learned.steps for learned in taken):,} steps and more",
            )


def _solve(rung: Rung, options: Options, game: str, seed: int) -> Learned:
    """Measure one rung with one seed. Raises `CannotRun` if it does not solve the game in time."""
    seed_and_steps = words_of(seed=seed, total_steps=ENDLESS_STEPS)
    words = [*_words(rung, options, game), *seed_and_steps]
    words = [*game_unless_env(game, words), *words]
    if rung.serial:
        flags = ["--bound", str(options.bound), "--minutes", str(options.solve_minutes)]
        learned = Learned(**_serial(rung, flags, words, 60 * options.solve_minutes))
    else:
        learned = solve_run(words, options.bound, options.solve_minutes)
    if learned.mean_return is None or learned.mean_return < options.bound:
        mean = (
            "fewer than a hundred episodes" if learned.mean_return is None else f"a mean of {learned.mean_return:.1f}"
        )
        raise CannotRun(
            f"Seed {seed} had {mean} after {learned.steps:,} steps and {learned.seconds / 60:.1f} minutes; solved is "
            f"{options.bound:g}."
        )
    return learned
