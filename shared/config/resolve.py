"""Values of the settings that a configuration leaves open: device, precision, processes, directory.

They are resolved once, before anything starts, and recorded with the run, because another value may change the last
bits of the weights. Only --actors and --learner-members may differ freely, so only they follow from the cores.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

from shared.config.method_declaration import method_declaration
from shared.config.protocols import PROTOCOLS, eval_rules
from shared.config.sections import PARTS, WORKER_SCHEDULES, Play, Precision, Schedule
from shared.config.settings import Config, ResolvedConfig
from shared.errors import ConfigError
from shared.machine import facts

LEARNER_PARTS = 4
"""Parts of an update by default, on a CPU or for ranks."""

WORKERS_TOGETHER = 8
"""Most emulators of workers in one forward pass: eight, half of the sixteen workers of the preset on two processes.

A process with fewer workers computes the other rows in vain, so that the bits are the same."""


def resolve(config: Config) -> ResolvedConfig:
    """The same configuration with an answer wherever the weights depend on it. Idempotent.

    Raises `ConfigError` when the device is not there.
    """
    play, machine = config.play, config.machine
    device = "cpu" if play.workers else device_of(machine.device, machine.learner_ranks)
    few_rows = play.workers > 0 and config.learn.local_replay == 0  # passes over t_max steps are no faster in bfloat16
    asked = "fp32" if few_rows and machine.precision == "auto" else machine.precision
    acts_on = device if machine.acting_device is None else device_of(machine.acting_device, flag="--acting-device")
    acts_in = machine.acting_precision or ("auto" if acts_on != device else None)
    rules = eval_rules(play, config.evaluate, method_declaration(config.algorithm.method))
    answers = {
        "eval_episodes": config.evaluate.eval_episodes or PROTOCOLS[play.protocol].eval_episodes,
        "eval_epsilon": rules.epsilon,
        "eval_max_frames": rules.max_frames,
        "eval_actions": rules.actions,
        "device": device,
        "precision": precision_of(asked, device),
        # They stay open where they are those of the learner.
        "acting_device": acts_on if acts_on != device else None,
        "acting_precision": None if acts_in is None else precision_of(acts_in, acts_on),
        **_allocation(config, on_cpu=device == "cpu", acts_on_cpu=acts_on == "cpu"),
        "run_dir": config.run.run_dir or run_directory_of(play),
    }
    return ResolvedConfig.from_config(config.with_settings(**answers))


def _allocation(config: Config, *, on_cpu: bool, acts_on_cpu: bool) -> dict[str, int]:
    """Settings that divide the cores of this machine: parts, members, threads, batch and actors.

    Args:
        config: with what the user set.
        on_cpu: True if the learner computes on a CPU.
        acts_on_cpu: True if the inference server does.
    """
    workers, machine, cores = config.play.workers, config.machine, facts.usable_cores()
    parts = machine.learner_parts or (1 if workers else learner_parts_of(machine.learner_ranks, on_cpu=on_cpu))
    physical = min(cores, facts.physical_cores()) if on_cpu else 1
    members = machine.learner_members or learner_members_of(parts, physical)
    inference_threads = machine.inference_threads or 1
    batch = inference_batch_of(config.play, on_cpu=acts_on_cpu, schedule=config.learn.schedule)
    # The learner waits while actors play, and actors wait while it learns; workers have no learner beside them.
    all_play = config.learn.schedule in ("alternate", *WORKER_SCHEDULES)
    spare = cores if all_play else cores - members * machine.learner_ranks - inference_threads
    return {
        "learner_parts": parts,
        "learner_members": members,
        "inference_threads": inference_threads,
        "inference_batch": machine.inference_batch or batch,
        "actors": machine.actors or actors_of(config.play, spare),
    }


def device_of(asked: str, ranks: int = 1, *, flag: str = "--device") -> str:
    """ "cpu" or "cuda:N", as `flag` asked for it.

    Raises `ConfigError` unless it is there, and a GPU from it on for each of the learner's ranks.
    """
    asked = str(asked)  # in Python it may be a torch.device
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", asked):
        raise ConfigError(f"{flag} {asked:.80} is not one of auto, cpu, cuda and cuda:N.")
    devices = 0 if asked == "cpu" else facts.cuda_devices()
    if devices == 0 and asked in ("auto", "cpu"):
        return "cpu"
    first = int(asked.partition(":")[2] or 0)
    if first >= devices:
        raise ConfigError(f"There is no device {asked}: {_why_missing(devices)}.")
    if first + ranks > devices:
        needed = f"--learner-ranks {ranks} need a GPU each from cuda:{first} on"
        raise ConfigError(f"{needed}, and the last is cuda:{devices - 1}: pass fewer, or --device cpu.")
    return f"cuda:{first}"


def _why_missing(devices: int) -> str:
    """The reason why there are no more than so many CUDA devices, as half a sentence."""
    if devices:
        return f"the last of {devices} is cuda:{devices - 1}"
    if not facts.has_nvidia_driver():
        return "no NVIDIA driver is loaded; pass --device cpu"
    if facts.torch_cuda_version() is None:
        return "the installed torch was built without CUDA"
    return "the NVIDIA driver shows none to this process, or is older than torch's CUDA"


def precision_of(asked: Precision, device: str) -> Precision:
    """The arithmetic of the networks on a device: the user's, or the fastest that its hardware has."""
    if asked != "auto":
        return asked
    if device == "cpu":
        return "bf16" if facts.bf16_flags() else "fp32"
    return "tf32"


def learner_parts_of(ranks: int, *, on_cpu: bool) -> int:
    """Parts of an update, from which its last bits follow: the same number on every CPU, whatever its cores."""
    least = LEARNER_PARTS if on_cpu or ranks > 1 else 1
    return next((parts for parts in PARTS if parts >= least and parts % ranks == 0), LEARNER_PARTS)


def learner_members_of(parts: int, cores: int) -> int:
    """Processes of a learner on a CPU of so many physical cores: the most that share the parts evenly.

    Each has a core. The others are for inference and two actors, which play faster than a CPU learns. On two cores two
    members are 1.6 times as fast as one, though they share them with the others (docs/lab/2026-11-team.md).
    """
    most = min(cores, max(2, cores - OTHERS))
    return max(members for members in PARTS if members <= most and parts % members == 0)


def actors_of(play: Play, spare: int) -> int:
    """Actor processes for `spare` cores, with two lanes each where possible; the fewest with the same greatest share.

    A worker waits for no inference, so one lane is enough for its process.
    """
    lanes = play.emulators // play.lane_envs
    return fewest_actors(lanes, max(1, min(spare, lanes if play.workers else lanes // 2)))


def inference_batch_of(play: Play, *, on_cpu: bool, schedule: Schedule = "concurrent") -> int:
    """Emulators answered by one forward pass: all of them on a GPU, groups of at most 32 on a CPU.

    On a CPU a row costs 396 us in a batch of 2 and 64 in one of 32 (bf16, docs/lab/2026-11-cpu-learner.md).
    There are two groups or more, so that one plays while the other is answered. Workers of rounds of gradients play
    with one version; others are answered alone.
    """
    if schedule == "async":
        return play.lane_envs
    if not on_cpu:
        return play.emulators
    lanes = play.emulators // play.lane_envs
    most = min(WORKERS_TOGETHER if play.workers else CPU_ROWS, play.emulators // 2 if lanes >= 2 else play.emulators)
    return largest_batch(lanes, play.lane_envs, most)


def run_directory_of(play: Play) -> Path:
    """runs/GAME-DATE-TIME-CODE, with a code that tells runs of one second apart.

    With an --env GAME is its name, with hyphens for what does not suit a file name.
    """
    name = play.game if play.env is None else "".join(c if c.isalnum() else "-" for c in play.env).strip("-")
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


OTHERS = 3
"""Cores that a learner on a CPU leaves free: one for inference and two for actors. Two members run on four or
fewer cores, too."""
CPU_ROWS = 32
"""Most rows of an inference batch on a CPU: larger ones cost as much a row (docs/lab/2026-11-cpu-learner.md)."""


def greatest_share(lanes: int, actors: int) -> int:
    """Lanes of the actor that has most of them, for which the others wait at the end of a round."""
    return -(-lanes // actors)


def fewest_actors(lanes: int, most: int) -> int:
    """Fewest actors, of at most `most`, whose greatest share is the least: more would not end a round earlier.

    48 lanes on 14 cores: with 14 actors, as with 12, some actor has 4 lanes. So 12 are as fast.
    """
    return greatest_share(lanes, greatest_share(lanes, most))


def largest_batch(lanes: int, lane_envs: int, most: int) -> int:
    """Most envs in whole lanes, at most `most` of them, of which all lanes make equal groups; at least one lane."""
    sizes = (count * lane_envs for count in range(1, lanes + 1) if lanes % count == 0)
    return max((size for size in sizes if size <= most), default=lane_envs)
