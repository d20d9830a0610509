"""Jobs of agents that learn: the same envs, samples and updates for Ringside and for other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringside.bench.harness.tables import CannotRun, WrongResult
from ringside.bench.peers.peer_environment import Environment

CLEANRL_URL = "https://github.com/vwxyzjn/cleanrl"
_SB3 = ("stable-baselines3==2.9.2", "ale-py", "gymnasium", "opencv-python-headless")
_PFRL = ("pfrl==0.4.0", "packaging", "ale-py", "gymnasium", "opencv-python-headless")  # PFRL names `packaging` nowhere
_CLEANRL = ("tyro", "tensorboard", "psutil", "ale-py", "gymnasium", "opencv-python-headless")
_ENVS = {", envs in one process": (), ", envs in processes": ("--env-processes",)}


@dataclass(frozen=True)
class Peer:
    """Another project's agent."""

    label: str
    packages: tuple[str, ...]
    script: str
    """File of this folder that measures it in the peers' environment."""
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"": ()})
    """Words for its script by their name in the report; the fastest is compared with Ringside."""
    cloned: bool = False
    """True if it is no package, and runs from a clone of its repository."""


@dataclass(frozen=True)
class Job:
    """One job: the settings of Ringside, and the peers that do the same."""

    name: str
    title: str
    peers: Mapping[str, Peer]
    """By their name for --only."""
    steps_per_update: int
    flags: tuple[str, ...]
    """Flags of launch.py. Rounds, or spans of rounds, are short, so that several fit into the time."""


JOBS = (
    Job(
        "DQN",
        "DQN, 32 samples every 4 steps",
        {
            "sb3": Peer("Stable-Baselines3 DQN", _SB3, "peer_dqn.py"),
            "pfrl": Peer("PFRL DQN", _PFRL, "peer_dqn.py"),
            "cleanrl-dqn": Peer("CleanRL dqn_atari", _CLEANRL, "peer_cleanrl.py", cloned=True),
        },
        steps_per_update=4,
        flags=("--round-steps", "2_000", "--train-every", "4"),
    ),
    Job(
        "PPO",
        "PPO, 8 envs x 128 steps, 4 passes in minibatches of 256",
        {
            "sb3-ppo": Peer("Stable-Baselines3 PPO", _SB3, "peer_on_policy.py", _ENVS),
            "cleanrl-ppo": Peer("CleanRL ppo_atari", _CLEANRL, "peer_cleanrl.py", cloned=True),
        },
        steps_per_update=64,
        flags=("--preset", "ppo", "--snapshot-every-steps", "2_048"),
    ),
    Job(
        "A2C",
        "A2C, 16 envs x 5 steps",
        {"sb3-a2c": Peer("Stable-Baselines3 A2C", _SB3, "peer_on_policy.py", _ENVS)},
        steps_per_update=80,
        flags=("--preset", "a2c", "--snapshot-every-steps", "2_000"),
    ),
)


def peer_speed(environment: Environment, job: Job, peer: Peer, words: Sequence[str], threads: int, least: int) -> float:
    """Steps/s of a peer that learns, for `least` steps or more.

    Args:
        environment: where its packages are installed.
        job: the job that it does.
        peer: one of the job's.
        words: arguments of its script.
        threads: threads that the words ask for.
        least: least number of measured steps.
    """
    words = [*words, "--steps", str(least)]
    result = environment.run_script(peer.script, words, seconds=float(least))  # allows for one step per second
    expected = result["steps"] // job.steps_per_update
    if result["steps"] < least or abs(result["updates"] - expected) > 1 or result["threads"] != threads:
        raise WrongResult(
            f"{result['package']} says {result['steps']} steps and {result['updates']} updates with "
            f"{result['threads']} threads where at least {least}, {expected} and {threads} were asked for."
        )
    return float(result["steps"] / result["seconds"])


def clone_words(peer: Peer, clone: Path | None) -> list[str]:
    """Arguments that name the clone of a peer's repository; none for a package. Raises `CannotRun` without a clone."""
    if not peer.cloned:
        return []
    if clone is None:
        raise CannotRun(f"{peer.label} is no package: git clone {CLEANRL_URL}, and pass --cleanrl with its folder.")
    return ["--clone", str(clone)]
