"""Ringside against other systems: the same game, samples and updates, on this machine, in one call.

Peers, for --only:

  sb3          Stable-Baselines3's DQN
  pfrl         PFRL's DQN, as in its reproduction of Mnih et al. 2015
  cleanrl-dqn  CleanRL's dqn_atari.py
  sb3-ppo      Stable-Baselines3's PPO: 8 envs x 128 steps, 4 passes in minibatches of 256
  cleanrl-ppo  CleanRL's ppo_atari.py: the same
  sb3-a2c      Stable-Baselines3's A2C: 16 envs x 5 steps
  ale          ale-py's AtariVectorEnv, in C++ threads
  sync         Gymnasium's SyncVectorEnv over its AtariPreprocessing and frame stack, in one process
  async        Gymnasium's AsyncVectorEnv over the same, in processes

The first six learn (ringside/bench/peers/learning_jobs.py), on the same device as Ringside; the DQNs play one env and
learn from 32 samples every 4 steps. CleanRL is no package: pass --cleanrl with a clone of its repository. They are
measured with 1, 2, 4, ... threads up to the cores. The best setting is compared with Ringside, at its default precision
and in fp32. The others play random actions, and are compared with Ringside's actors with random answers, in as many
processes. Resets are included on all sides. Packages are installed in a separate environment, .venv-peers, in the
versions of requirements.lock where it names them. The steps, updates and observation shapes that the peers report are
checked.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from actors.envs.atari import game_name
from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, doublings, measure_interleaved, names_in_list
from ringside.bench.harness.measured_runs import measure_run
from ringside.bench.harness.programs import json_result
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.peers.learning_jobs import JOBS, Job, clone_words, peer_speed
from ringside.bench.peers.peer_environment import Environment
from shared.config.resolve import check_device_name, device_of
from shared.errors import ConfigError
from shared.machine import facts
from shared.text import count

VECTORS = ("ale-py", "gymnasium", "opencv-python-headless")
NAMES = (*(name for job in JOBS for name in job.peers), "ale", "sync", "async")
ENVS_A_THREAD = {"ale": 16, "async": 4}
"""Envs for each thread or core; the fastest of the numbers tried."""
SYNC_ENVS = 8


@dataclass(frozen=True)
class Options(Common):
    """Options of `launch.py bench peers`."""

    only: str = "all"
    """Peers to be measured, separated by commas."""
    game: str = "breakout"
    """Game, as in ale-py."""
    cleanrl: Path | None = None
    """Clone of CleanRL's repository."""
    device: str = "auto"
    """Device of all learners, ours and the peers': cpu, cuda, cuda:N, or auto."""
    seconds: float = 30.0
    """Seconds of one measurement of Ringside, in whole rounds."""
    peer_steps: int = 4_000
    """Steps of one measurement of a peer that learns."""
    env_seconds: float = 5.0
    """Seconds of one measurement of envs that play at random."""


def measure(options: Options, report: Report) -> None:
    """Measure both tables; a table without an available peer is left out."""
    names = names_in_list(options.only, NAMES, "--only")
    check_device_name(options.device)
    game = game_name(options.game)
    environment = Environment()
    for job in JOBS:
        if wanted := [name for name in job.peers if name in names]:
            with report.noting(job.title):
                _learning(options, report, environment, game, job, wanted)
    _playing(options, report, environment, game, names)


# --- agents that learn


def _learning(
    options: Options, report: Report, environment: Environment, game: str, job: Job, names: Sequence[str]
) -> None:
    """Measure the peers that do one job, and Ringside, on one device."""
    device = _device(options.device)
    peers: dict[str, list[str]] = {}
    contenders = []
    for name in names:
        peer = job.peers[name]
        with report.measuring(peer.label):
            clone = clone_words(peer, options.cleanrl)
            environment.install(*peer.packages)
            for threads, (variant, words) in product(doublings(facts.usable_cores()), peer.variants.items()):
                asked = [name, "--game", game, "--device", device, "--threads", str(threads), *words, *clone]
                speed = partial(peer_speed, environment, job, peer, asked, threads, options.peer_steps)
                label = f"{peer.label}, {count(threads, 'thread')}{variant}"
                contenders.append(Contender(label, speed, peer.label))
                peers.setdefault(peer.label, []).append(label)
    if not contenders:
        return
    ours = {"Ringside": [], "Ringside, fp32": ["--precision", "fp32"]}
    for label, precision in ours.items():
        speed = partial(_ringside, options, game, [*job.flags, *precision, "--device", device])
        contenders.append(Contender(label, speed))
    reached = measure_interleaved(report, contenders, options.repeats)
    with report.measuring(f"{job.title} on {game}, on {device}"):
        for name, values in reached.items():
            report.add(f"{name}, {job.name}" if name in ours else name, "steps/s", values)
        for settings in peers.values():
            there = [setting for setting in settings if setting in reached]
            if there:
                best = max(there, key=lambda setting: statistics.median(reached[setting]))
                _add_ratios(report, reached, ours, best)


def _device(asked: str) -> str:
    """ "cpu" or "cuda:N". Raises `CannotRun` if the device is not available."""
    try:
        return device_of(asked)
    except ConfigError as error:
        raise CannotRun(str(error)) from error


def _ringside(options: Options, game: str, words: Sequence[str]) -> float:
    """Steps/s of a run, whose records are checked."""
    return measure_run(game, options.seconds, words).steps_per_second


# --- envs that play at random


def _playing(options: Options, report: Report, environment: Environment, game: str, names: Sequence[str]) -> None:
    """Measure the peers' envs, and Ringside's actors."""
    cores = facts.usable_cores()
    sizes = doublings(cores)
    peers: dict[str, int] = {}
    contenders = []

    def add(kind: str, label: str, envs: int, workers: int) -> None:
        speed = partial(_peer_envs, environment, kind, game, envs, workers, options.env_seconds)
        contenders.append(Contender(label, speed))
        peers[label] = workers

    for kind in [each for each in ("ale", "sync", "async") if each in names]:
        with report.measuring({"ale": "AtariVectorEnv", "sync": "SyncVectorEnv", "async": "AsyncVectorEnv"}[kind]):
            environment.install(*VECTORS)
            if kind == "sync":
                add(kind, "SyncVectorEnv", SYNC_ENVS, 1)
            elif kind == "ale":
                for threads in sizes:
                    add(kind, f"AtariVectorEnv, {count(threads, 'thread')}", ENVS_A_THREAD[kind] * threads, threads)
            else:
                envs = ENVS_A_THREAD[kind] * cores
                add(kind, f"AsyncVectorEnv, {count(envs, 'process')}", envs, cores)
    if not contenders:
        return
    ours = {f"Ringside's actors, {count(size, 'process')}": size for size in sizes}
    for label, size in ours.items():
        contenders.append(Contender(label, partial(_actors_alone, game, size, options.env_seconds)))
    reached = measure_interleaved(report, contenders, options.repeats)
    with report.measuring(f"envs of {game} at random"):
        _add(report, reached)
        for label, workers in peers.items():
            if label in reached:
                _add_ratios(report, reached, [name for name, size in ours.items() if size == workers], label)


def _peer_envs(environment: Environment, kind: str, game: str, envs: int, threads: int, seconds: float) -> float:
    """Steps/s of a peer's vector of envs."""
    words = [kind, "--game", game, "--envs", str(envs), "--threads", str(threads), "--seconds", str(seconds)]
    result = environment.run_script("peer_envs.py", words, seconds)
    if result["steps"] % envs or result["seen"] != result["looks"] or not result["looks"]:
        raise WrongResult(
            f"{result['package']} played {result['steps']} steps of {envs} envs; {result['seen']} of {result['looks']} "
            "looks found stacks of four frames with something in them."
        )
    return float(result["steps"] / result["seconds"])


def _actors_alone(game: str, processes: int, seconds: float) -> float:
    """Steps/s of Ringside's actors."""
    words = ["--game", game, "--processes", str(processes), "--seconds", str(seconds)]
    result = json_result([sys.executable, "-m", "ringside.bench.system_parts.actors_alone", *words], 60.0 + 2 * seconds)
    if result["steps"] != result["logged"]:
        raise WrongResult(f"Actors played {result['steps']} steps, and {result['logged']} are in their rings.")
    return float(result["steps_per_second"])


# --- rows


def _add(report: Report, reached: dict[str, list[float]]) -> None:
    for name, values in reached.items():
        report.add(name, "steps/s", values)


def _add_ratios(report: Report, reached: dict[str, list[float]], ours: Iterable[str], peer: str) -> None:
    """Add the ratios of our speeds to a peer's, repeat by repeat."""
    for name in ours:
        if name in reached:
            ratios = [mine / other for mine, other in zip(reached[name], reached[peer], strict=True)]
            report.add(f"{name} : {peer}", "times", ratios)
