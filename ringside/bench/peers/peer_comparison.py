"""Ringside against other systems: the same game at the same update ratio, on this machine, in one call.

Peers, for --only:

  sb3      Stable-Baselines3's DQN
  pfrl     PFRL's DQN, as in its reproduction of Mnih et al. 2015: one process, like CleanRL's
  cleanrl  CleanRL's dqn_atari; no package of it supports the Pythons of Ringside, and the report says so
  ale      ale-py's AtariVectorEnv, in C++ threads
  sync     Gymnasium's SyncVectorEnv over its AtariPreprocessing and frame stack, in one process
  async    Gymnasium's AsyncVectorEnv over the same, in processes

The first three play one env and learn from 32 samples every 4 steps, on the same device as Ringside. They are measured
with 1, 2, 4, ... threads up to the cores. The best setting is compared with Ringside, at its default precision and in
fp32. The others play random actions, and are compared with Ringside's actors with random answers, in as many processes.
Resets are included on all sides. Packages are installed in a separate environment, .venv-peers, in the versions of
requirements.lock where it names them. The steps, updates and observation shapes that the peers report are checked.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from actors.envs.atari import game_name
from ringside.bench.bench_command import Common
from ringside.bench.harness.interleaved import Contender, doublings, measure_interleaved, names_in_list
from ringside.bench.harness.measured_runs import measure as measure_run
from ringside.bench.harness.programs import json_result
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.peers.peer_environment import Environment
from shared.config.resolve import check_device_name, device_of
from shared.errors import ConfigError
from shared.machine import facts
from shared.text import count

SB3 = ("stable-baselines3==2.9.2", "ale-py", "gymnasium", "opencv-python-headless")
PFRL = ("pfrl==0.4.0", "packaging", "ale-py", "gymnasium", "opencv-python-headless")  # PFRL names `packaging` nowhere
VECTORS = ("ale-py", "gymnasium", "opencv-python-headless")
LEARNERS = {"sb3": ("Stable-Baselines3 DQN", SB3), "pfrl": ("PFRL DQN", PFRL)}
"""Name and packages of the peers that learn."""
NO_CLEANRL = (
    "cleanrl 1.2.0, the newest package with its dqn_atari, is for Python 3.7 to 3.10; older ones need a gym of 2021. "
    "PFRL's DQN stands for one process with published settings."
)
NAMES = ("sb3", "pfrl", "cleanrl", "ale", "sync", "async")
TRAIN_EVERY = 4
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
    device: str = "auto"
    """Device of all learners, ours and the peers': cpu, cuda, cuda:N, or auto."""
    seconds: float = 30.0
    """Seconds of one measurement of Ringside, in whole rounds."""
    peer_steps: int = 4_000
    """Steps of one measurement of a peer that learns."""
    env_seconds: float = 5.0
    """Seconds of one measurement of envs that play at random."""
    round_steps: int = 2_000
    """Steps of a round of Ringside; fewer than the default, so that several rounds fit into the time."""


def measure(options: Options, report: Report) -> None:
    """Measure both tables; a table without an available peer is left out."""
    names = names_in_list(options.only, NAMES, "--only")
    check_device_name(options.device)
    game = game_name(options.game)
    environment = Environment()
    if "cleanrl" in names:
        with report.measuring("CleanRL"):
            raise CannotRun(NO_CLEANRL)
    if any(name in LEARNERS for name in names):
        _learning(options, report, environment, game, names)
    _playing(options, report, environment, game, names)


# --- agents that learn


def _learning(options: Options, report: Report, environment: Environment, game: str, names: Sequence[str]) -> None:
    """Measure the peers that learn, and Ringside."""
    with report.noting("DQN"):
        _learners(options, report, environment, game, names, _device(options.device))


def _device(asked: str) -> str:
    """ "cpu" or "cuda:N". Raises `CannotRun` if the device is not available."""
    try:
        return device_of(asked)
    except ConfigError as error:
        raise CannotRun(str(error)) from error


def _learners(
    options: Options, report: Report, environment: Environment, game: str, names: Sequence[str], device: str
) -> None:
    """Measure the peers that learn, and Ringside, on one device."""
    title = f"DQN on {game}, 32 samples every {TRAIN_EVERY} steps, on {device}"
    peers: dict[str, list[str]] = {}
    contenders = []
    for name in [each for each in LEARNERS if each in names]:
        label, packages = LEARNERS[name]
        with report.measuring(label):
            environment.install(*packages)
            for threads in doublings(facts.usable_cores()):
                speed = partial(_peer_dqn, environment, name, game, device, threads, options.peer_steps)
                contenders.append(Contender(f"{label}, {count(threads, 'thread')}", speed, label))
                peers.setdefault(label, []).append(contenders[-1].name)
    if not contenders:
        return
    ours = {"Ringside": [], "Ringside, fp32": ["--precision", "fp32"]}
    for label, words in ours.items():
        contenders.append(Contender(label, partial(_ringside, options, game, [*words, "--device", device])))
    reached = measure_interleaved(report, contenders, options.repeats)
    with report.measuring(title):
        _add(report, reached)
        for settings in peers.values():
            there = [setting for setting in settings if setting in reached]
            if there:
                best = max(there, key=lambda setting: statistics.median(reached[setting]))
                _add_ratios(report, reached, ours, best)


def _peer_dqn(environment: Environment, name: str, game: str, device: str, threads: int, steps: int) -> float:
    """Steps/s of a peer that learns."""
    words = [name, "--game", game, "--device", device, "--threads", str(threads), "--steps", str(steps)]
    result = environment.told("peer_dqn.py", words, seconds=float(steps))  # allows for one step per second
    expected = steps // TRAIN_EVERY
    if result["steps"] != steps or abs(result["updates"] - expected) > 1 or result["threads"] != threads:
        raise WrongResult(
            f"{result['package']} says {result['steps']} steps and {result['updates']} updates with "
            f"{result['threads']} threads where {steps}, {expected} and {threads} were asked for."
        )
    return float(steps / result["seconds"])


def _ringside(options: Options, game: str, words: Sequence[str]) -> float:
    """Steps/s of a run, whose records are checked."""
    shape = ["--round-steps", str(options.round_steps), "--train-every", str(TRAIN_EVERY)]
    return measure_run(game, options.seconds, [*shape, *words]).steps_per_second


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
    result = environment.told("peer_envs.py", words, seconds)
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
