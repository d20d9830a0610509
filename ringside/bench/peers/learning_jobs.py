"""Jobs of agents that learn: the same envs, samples and updates for Ringside and for other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringside.bench.harness.tables import WrongResult
from ringside.bench.peers.peer_environment import Environment

_SB3 = ("stable-baselines3==2.9.2", "ale-py", "gymnasium", "opencv-python-headless")
_PFRL = ("pfrl==0.4.0", "packaging", "ale-py", "gymnasium", "opencv-python-headless")  # PFRL names `packaging` nowhere
_ENVS = {", envs in one process": (), ", envs in processes": ("--env-processes",)}


@dataclass(frozen=True)
class Peer:
    """Another package's agent."""

    label: str
    packages: tuple[str, ...]
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"": ()})
    """Words for its script by their name in the report; the fastest is compared with Ringside."""


@dataclass(frozen=True)
class Job:
    """One job: the settings of Ringside, and the peers that do the same."""

    name: str
    title: str
    peers: Mapping[str, Peer]
    """By their name for --only."""
    script: str
    """File of this folder that measures a peer in the peers' environment."""
    steps_per_update: int
    flags: tuple[str, ...]
    """Flags of launch.py. Rounds, or spans of rounds, are short, so that several fit into the time."""


JOBS = (
    Job(
        "DQN",
        "DQN, 32 samples every 4 steps",
        {"sb3": Peer("Stable-Baselines3 DQN", _SB3), "pfrl": Peer("PFRL DQN", _PFRL)},
        "peer_dqn.py",
        steps_per_update=4,
        flags=("--round-steps", "2_000", "--train-every", "4"),
    ),
    Job(
        "PPO",
        "PPO, 8 envs x 128 steps, 4 passes in minibatches of 256",
        {"sb3-ppo": Peer("Stable-Baselines3 PPO", _SB3, _ENVS)},
        "peer_on_policy.py",
        steps_per_update=64,
        flags=("--preset", "ppo", "--snapshot-every-steps", "2_048"),
    ),
    Job(
        "A2C",
        "A2C, 16 envs x 5 steps",
        {"sb3-a2c": Peer("Stable-Baselines3 A2C", _SB3, _ENVS)},
        "peer_on_policy.py",
        steps_per_update=80,
        flags=("--preset", "a2c", "--snapshot-every-steps", "2_000"),
    ),
)


def peer_speed(environment: Environment, job: Job, words: Sequence[str], threads: int, least: int) -> float:
    """Steps/s of a peer that learns, for `least` steps or more.

    Args:
        environment: where its packages are installed.
        job: the job that it does.
        words: arguments of the job's script.
        threads: threads that the words ask for.
        least: least number of measured steps.
    """
    words = [*words, "--steps", str(least)]
    result = environment.told(job.script, words, seconds=float(least))  # allows for one step per second
    expected = result["steps"] // job.steps_per_update
    if result["steps"] < least or abs(result["updates"] - expected) > 1 or result["threads"] != threads:
        raise WrongResult(
            f"{result['package']} says {result['steps']} steps and {result['updates']} updates with "
            f"{result['threads']} threads where at least {least}, {expected} and {threads} were asked for."
        )
    return float(result["steps"] / result["seconds"])
