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

The first six learn (benchmarks/peer_program.py), on the same device as Ringside; the DQNs play one env and learn from
32 samples every 4 steps. CleanRL is no package: pass --cleanrl with a clone of its repository. They are measured with
1, 2, 4, ... threads up to the cores. Their best setting of each repeat is compared with Ringside, at its default
precision and in fp32. The others play random actions, and are compared with Ringside's actors with random answers, in
as many processes. Resets are included on all sides. Packages are installed in a separate environment, .venv-peers, in
the versions of requirements.lock where it names them. The steps, updates and observation shapes that the peers report
are checked. Words after -- are flags of launch.py, such as --device cuda.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from actors.envs.atari import game_name
from benchmarks.__main__ import above_zero
from benchmarks.emulator import actors_at_random
from benchmarks.harness import CannotRun, Case, Figure, Found, Options, Report, WrongResult, doublings, speed_case
from benchmarks.measured_run import has_flag, measured_words, plan_of
from benchmarks.throughput import run_speed
from shared.errors import ConfigError
from shared.machine.facts import usable_cores
from shared.machine.subprocesses import read_output
from shared.root import ROOT
from shared.text import count

VENV = ROOT / ".venv-peers"
PROGRAM = Path(__file__).with_name("peer_program.py")
LOCK = ROOT / "requirements.lock"
PYTHON = str(VENV / "bin" / "python")
PIP = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(LOCK))
INSTALL_SECONDS = 1_800.0
"""Longest time of an installation; torch with CUDA has gigabytes."""
START_SECONDS = 900.0
"""Longest time until a peer begins to learn, even on a busy machine."""
CLEANRL_URL = "https://github.com/vwxyzjn/cleanrl"
ENVS = ("ale-py", "gymnasium", "opencv-python-headless")
SB3 = ("stable-baselines3==2.9.2", *ENVS)
PFRL = ("pfrl==0.4.0", "packaging", *ENVS)  # PFRL names `packaging` nowhere
CLEANRL = ("tyro", "tensorboard", "psutil", *ENVS)
PLAY_SHARE = 1 / 6
"""Share of the measuring time for envs under random actions, which are at steady state from their start."""
VARIANTS = {", envs in one process": (), ", envs in processes": ("--env-processes",)}


class Peer(NamedTuple):
    """Another project's agent."""

    label: str
    packages: tuple[str, ...]
    job: str
    variants: Mapping[str, tuple[str, ...]] = {"": ()}
    """Words for its program by their name in the report; the fastest is compared with Ringside."""


PEERS = {
    "sb3": Peer("Stable-Baselines3 DQN", SB3, "DQN"),
    "pfrl": Peer("PFRL DQN", PFRL, "DQN"),
    "cleanrl-dqn": Peer("CleanRL dqn_atari", CLEANRL, "DQN"),
    "sb3-ppo": Peer("Stable-Baselines3 PPO", SB3, "PPO", VARIANTS),
    "cleanrl-ppo": Peer("CleanRL ppo_atari", CLEANRL, "PPO"),
    "sb3-a2c": Peer("Stable-Baselines3 A2C", SB3, "A2C", VARIANTS),
}
JOBS = {
    "DQN": (4, ("--round-steps", "2_000", "--train-every", "4")),
    "PPO": (64, ("--preset", "ppo")),
    "A2C": (80, ("--preset", "a2c")),
}
"""Steps for each update, and flags of Ringside that do the same."""
VECTORS = {"ale": ("AtariVectorEnv", 16), "sync": ("SyncVectorEnv", 8), "async": ("AsyncVectorEnv", 4)}
"""Name of the class, and envs for each thread or core: the fastest of the numbers tried."""
NAMES = (*PEERS, *VECTORS)
DEFAULTS = {"only": "all", "game": "breakout", "seconds": 30.0}
OPTIONS = {
    "--cleanrl": {"type": Path, "metavar": "DIR", "help": "clone of CleanRL's repository"},
    "--peer-steps": {"type": above_zero(int), "default": 4_000, "help": "steps of a measurement of a peer that learns"},
}


def run(options: Options, report: Report) -> None:
    """Measure each job and the envs; a table without an available peer is left out."""
    game = game_name(options.game)
    for job, (_, flags) in JOBS.items():
        words = measured_words(game, options.words, *flags)
        ours = {f"Ringside, {job}": words, f"Ringside, fp32, {job}": [*words, "--precision", "fp32"]}
        names = [name for name in options.names if name in PEERS and PEERS[name].job == job]
        plan, usual = plan_of(words), plan_of(measured_words(game, [], *flags))
        own, same = ((each.update_samples, each.steps_per_update) for each in (plan.run_schedule, usual.run_schedule))
        if names and (own != same or has_flag(options.words, "--env")):
            raise ConfigError("Words after -- must leave the game, the batch and the steps of each update alone.")
        device = plan.config.machine.device
        peers = {PEERS[name].label: list(agent_cases(options, report, game, name, device)) for name in names}
        cases = [case for settings in peers.values() for case in settings]
        if cases:
            cases += [speed_case(name, partial(run_speed, each, options.seconds)) for name, each in ours.items()]
            cases += [ratio_case(label, [case.name for case in of], list(ours)) for label, of in peers.items() if of]
            report.run(cases, options.repeats)
    report.run(list(env_cases(options, report, game)), options.repeats)


def ratio_case(label: str, settings: Sequence[str], ours: Sequence[str]) -> Case:
    """Our speeds divided by that of the peer's best setting."""

    def measure(found: Found) -> Iterator[Figure]:
        best = max(settings, key=lambda name: found.get(name, 0.0))
        yield from (Figure(f"{name} : {label}", found[name] / found[best], "times", note=best) for name in ours)

    return Case(f"Ringside : {label}", measure, "ratios")


# --- agents that learn


def agent_cases(options: Options, report: Report, game: str, name: str, device: str) -> Iterator[Case]:
    """The settings of a peer; none if it cannot be installed."""
    peer, least = PEERS[name], options.peer_steps
    with report.noting(peer.label):
        own = [name, "--game", game, "--device", device, "--steps", str(least)]
        if name.startswith("cleanrl"):
            if options.cleanrl is None:
                raise CannotRun(f"It is no package: git clone {CLEANRL_URL}, and pass --cleanrl with its folder.")
            own += ["--clone", str(options.cleanrl)]
        install(*peer.packages)
        for threads, (variant, more) in product(doublings(usable_cores()), peer.variants.items()):
            label, part = f"{peer.label}, {count(threads, 'thread')}{variant}", f"{peer.job} on {device}"
            yield speed_case(label, partial(agent_speed, peer.job, [*own, *more], threads, least), part=part)


def agent_speed(job: str, words: Sequence[str], threads: int, least: int) -> float:
    """Steps/s of a peer that learns, for `least` steps or more."""
    result = run_program([*words, "--threads", str(threads)], float(least))  # allows for one step per second
    expected = result["steps"] // JOBS[job][0]
    if result["steps"] < least or abs(result["updates"] - expected) > 1 or result["threads"] != threads:
        raise WrongResult(
            f"It says {result['steps']} steps and {result['updates']} updates with {result['threads']} threads where "
            f"at least {least}, {expected} and {threads} were asked for."
        )
    return float(result["steps"] / result["seconds"])


# --- envs that play at random


def env_cases(options: Options, report: Report, game: str) -> Iterator[Case]:
    """The peers' envs, Ringside's actors in as many processes, and the ratios."""
    cores, seconds = usable_cores(), PLAY_SHARE * options.seconds
    sizes: dict[str, int] = {}
    for kind in [name for name in VECTORS if name in options.names]:
        label, each = VECTORS[kind]
        with report.noting(label):
            install(*ENVS)
            for size in {"ale": doublings(cores), "sync": [1], "async": [cores]}[kind]:
                name = f"{label}, {count(size, 'thread') if kind == 'ale' else f'{size * each} envs'}"
                sizes[name] = size
                yield speed_case(name, partial(env_speed, kind, game, size * each, size, seconds), part="at random")
    ours = {size: f"Ringside's actors, {count(size, 'process')}" for size in sorted(sizes.values())}
    for size, name in ours.items():
        yield speed_case(name, partial(actors_at_random, game, size, seconds), part="at random")
    for name, size in sizes.items():
        yield ratio_case(name, [name], [ours[size]])


def env_speed(kind: str, game: str, envs: int, threads: int, seconds: float) -> float:
    """Steps/s of a peer's vector of envs."""
    words = [kind, "--game", game, "--envs", str(envs), "--threads", str(threads), "--seconds", str(seconds)]
    result = run_program(words, seconds)
    if result["seen"] != result["looks"] or not result["looks"]:
        raise WrongResult(
            f"It played {result['steps']} steps of {envs} envs; {result['seen']} of {result['looks']} looks found "
            "stacks of four frames with something in them."
        )
    return float(result["steps"] / result["seconds"])


# --- the peers' environment, with the same torch, emulator and Gymnasium as this project's


@cache
def refusal() -> str:
    """Make the environment. Return the reason if that is not possible: without a network pip takes long to fail.

    torch is installed first and alone, so that no other package chooses its build.
    """
    try:
        try:
            run_command([PYTHON, "-m", "pip", "--version"], START_SECONDS)  # installed last
        except CannotRun:
            run_command([sys.executable, "-m", "venv", "--clear", str(VENV)], INSTALL_SECONDS)
        torch = next(line for line in LOCK.read_text().splitlines() if line.startswith("torch=="))
        run_command([*PIP, torch], INSTALL_SECONDS)
    except CannotRun as error:
        return str(error)
    return ""


def install(*packages: str) -> None:
    """Install packages, in the versions of requirements.lock where it names them. Raises `CannotRun`."""
    if reason := refusal():
        raise CannotRun(reason)
    run_command([*PIP, *packages], INSTALL_SECONDS)


def run_program(words: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run peer_program.py; return the JSON of its last line. It is stopped `START_SECONDS` after its measuring time."""
    # -P: modules of this folder must not shadow libraries of the same name.
    output = run_command([PYTHON, "-P", str(PROGRAM), *words], seconds + START_SECONDS)
    try:
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise WrongResult(f"{PROGRAM.name} {' '.join(words)} printed no result.") from None
    return result


def run_command(command: Sequence[str], seconds: float) -> str:
    """Return the output of a command. Raises `CannotRun` with its last error line, or after `seconds`."""
    try:
        return read_output(command, seconds, cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{' '.join(command[1:])} did not end within {seconds:.0f} s.") from None
    except OSError as error:
        raise CannotRun(f"{command[0]} cannot be started: {error.strerror}.") from error
    except subprocess.CalledProcessError as error:
        complaints = [line.strip() for line in error.stderr.splitlines() if line.strip()] or ["it said nothing"]
        errors = [line for line in complaints if line.startswith("ERROR")] or complaints
        raise CannotRun(f"{' '.join(command[1:])} failed: {errors[-1]}") from None
