"""The classical comparisons of faster DQN variants, rebuilt from Ringside's parts.

--only takes names of rungs, and these tables; `lapan,fast-dqn` unless given:

lapan, the ladder of Deep Reinforcement Learning Hands-On, ch. 9:

  gradients          one process, one env, Gymnasium's preprocessing, autograd left on in inference
  one-env            autograd off
  three-envs         three envs in one inference batch; training batches three times as large, a third as many
  parallel           one env in one process, training in another; batches four times as large
  light-three-envs   three-envs with our frames instead of Gymnasium's preprocessing
  light-parallel     parallel with our frames
  ringside           Ringside's defaults: many envs, actors on all cores

fast-dqn, the two-by-two of Daley & Amato (arXiv:2111.01264), N being 1, 2, 4 or 8 envs, in processes up to the cores:

  alternate-N        steps, then their updates; one inference batch per env
  alternate-sync-N   the same, with all envs in one batch
  concurrent-N       steps and updates in parallel, acting with the target network; one inference batch per env
  concurrent-sync-N  the same, with all envs in one batch

jobs, those of the four systems that Ringside comes from, with their published figures. These come from other machines,
games and years: they are no target.

  fast-dqn before, fast-dqn both    one env in turns; eight envs, concurrent and synchronized
  lapan before, lapan last          the first and the last rung, in one process and in two
  a3c batched                       tensorpack's A3C-Gym: many envs, one batch of inference, one of training
  async dqn, async a3c              workers that compute gradients on copies of the network and apply them
  ringside dqn, ringside ppo        plain DQN with Ringside's defaults, and PPO, for comparison

async, asynchronous gradients (Mnih et al. 2016), N being 1, 2, 4, 8 or 16 workers:

  async-N            A3C without a lock, in processes up to the cores
  ordered-N          the same in rounds of gradients
  a3c, impala        actor-critics on batches, with the same network

Rungs in one process run benchmarks/serial.py, whose network is made of PyTorch layers. The others are runs of
launch.py, `parallel` with --schedule free. Those of the first two tables sample 8 transitions per step and train plain
DQN, with the other settings of the preset quick. Lapan trains on 32 transitions after every step, and leaves autograd
on for the target network too. Every rung here updates with our engine, and publishes parameters as a run does. fast-dqn
acts with the target network even where it alternates; we act with the online one.

Shares are ratios to the first rung of a table, or of a system. Words after -- are flags of launch.py for all rungs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from actors.envs.atari import game_name
from benchmarks.harness import Case, Options, Report, measure_at_once, speed_case
from benchmarks.measured_run import measure_run, measured_words, plan_of
from benchmarks.serial import serial_speed
from shared.config.presets import PRESETS
from shared.machine.facts import usable_cores
from shared.text import words_of

FAST_ENVS = (1, 2, 4, 8)
ASYNC_WORKERS = (1, 2, 4, 8, 16)
TRAIN_EVERY, BATCH = 4, PRESETS["quick"].learn.batch_size
PLAIN_DQN = "--preset quick --no-double --n-step 1 --learning-rate 1e-4 --round-steps 1_024 \
--snapshot-every-steps 1_024 --learning-starts 512 --replay-size 20_000"
"""Flags of the first two tables; the learning rate is Lapan's. The last two shorten a measurement without changing
its speed."""
GYMNASIUM = ("--env", "benchmarks.wrapped_game:make")
"""Flags with which Gymnasium's preprocessing replaces our frames."""
JOBS = (
    ("fast-dqn before", "alternate-1", "fast-dqn", "556 steps/s on a GTX 1080 (25 h for 50 M steps)"),
    ("fast-dqn both", "concurrent-sync-8", "fast-dqn", "1,543 steps/s on a GTX 1080 (9 h for 50 M steps)"),
    ("lapan before", "gradients", "Lapan", ""),
    ("lapan last", "parallel", "Lapan", "Pong solved 3.5 times as fast as before (chapter 9)"),
    ("a3c batched", "a3c", "tensorpack", "768 to 1,280 steps/s, on a GPU and 12 cores or more (its README)"),
    ("async dqn", "dqn-async", "Mnih et al. 2016", "90.5 steps/s, 500,000 steps of Pong (a tutorial's author)"),
    ("async a3c", "a3c-async", "Mnih et al. 2016", ""),
    ("ringside dqn", "ringside", "Ringside", ""),
    ("ringside ppo", "ppo", "Ringside", ""),
)
"""Name, rung of another table or preset, system, and figure of its authors with its source and machine."""


@dataclass(frozen=True)
class Rung:
    """One line of a table."""

    name: str
    table: str
    words: tuple[str, ...]
    """Flags of launch.py."""
    serial: bool = False
    """True if the rung is one process instead of a run."""
    gradients: bool = False
    """True if autograd stays on in inference."""
    system: str = ""
    """Rungs of one system are compared with the first of them; default: its table."""
    published: str = ""


def dqn(larger: int = 1, **settings: Any) -> tuple[str, ...]:
    """Flags of plain DQN with 8 samples per step; `larger` is a factor for the batch size and for the steps between."""
    ratio = {"train_every": larger * TRAIN_EVERY, "batch_size": larger * BATCH}
    return (*PLAIN_DQN.split(), *words_of(**ratio, **settings))


def rungs() -> list[Rung]:
    """All tables, top to bottom."""
    cores, one_env = usable_cores(), {"lane_envs": 1, "actors": 1}
    one, three = (dqn(envs, schedule="alternate", envs=envs, **one_env) for envs in (1, 3))
    two_processes = dqn(4, schedule="free", envs=1, **one_env)
    found = [
        Rung("gradients", "lapan", one + GYMNASIUM, serial=True, gradients=True),
        Rung("one-env", "lapan", one + GYMNASIUM, serial=True),
        Rung("three-envs", "lapan", three + GYMNASIUM, serial=True),
        Rung("parallel", "lapan", two_processes + GYMNASIUM),
        Rung("light-three-envs", "lapan", three, serial=True),
        Rung("light-parallel", "lapan", two_processes),
        Rung("ringside", "lapan", dqn()),
    ]
    for envs in FAST_ENVS:
        for schedule in ("alternate", "concurrent"):
            for name, batch in {f"{schedule}-{envs}": 1, f"{schedule}-sync-{envs}": envs}.items():
                if envs > 1 or "sync" not in name:
                    settings = {"envs": envs, "lane_envs": 1, "actors": min(envs, cores), "inference_batch": batch}
                    found.append(Rung(name, "fast-dqn", dqn(schedule=schedule, **settings)))
    known = {rung.name: rung for rung in found}
    for name, of, system, published in JOBS:
        rung = known.get(of) or Rung(name, "jobs", ("--preset", of))
        found.append(replace(rung, name=name, table="jobs", system=system, published=published))
    for schedule in ("async", "ordered"):
        for workers in ASYNC_WORKERS:
            words = words_of(preset="a3c-async", schedule=schedule, workers=workers, actors=min(workers, cores))
            found.append(Rung(f"{schedule}-{workers}", "async", tuple(words)))
    return found + [Rung(preset, "async", ("--preset", preset, "--network", "a3c")) for preset in ("a3c", "impala")]


RUNGS = rungs()
TABLES = tuple(dict.fromkeys(rung.table for rung in RUNGS))
NAMES = (*TABLES, *(rung.name for rung in RUNGS))
DEFAULTS = {"only": "lapan,fast-dqn", "game": "pong", "seconds": 20.0}


def run(options: Options, report: Report) -> None:
    """Measure the speed of the requested rungs. Raises `ConfigError` before anything runs if a setting is invalid."""
    options.game = game_name(options.game)
    wanted = [rung for rung in RUNGS if {rung.name, rung.table} & set(options.names)]
    firsts: dict[str, str] = {}
    report.run([case_of(rung, options, firsts) for rung in wanted], options.repeats)


def case_of(rung: Rung, options: Options, firsts: dict[str, str]) -> Case:
    """The measurement of a rung; `firsts` has the first rung of each table or system."""
    part = rung.system or rung.table
    first = firsts.setdefault(part, rung.name)
    words = [*rung.words, *(("--env-kwargs", f"game={options.game}") if "--env" in rung.words else ())]
    words = measured_words(options.game, options.words, *words)
    plan = plan_of(words)

    def speed() -> float:
        if rung.serial:
            return float(measure_at_once([(serial_speed, plan, rung.gradients)], options.seconds)[0])
        return measure_run(words, options.seconds).steps_per_second

    note = f"published: {rung.published}" if rung.published else ""
    return speed_case(rung.name, speed, limit=None if first == rung.name else first, note=note, part=part)
