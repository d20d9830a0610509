"""Is a configuration possible? Every answer "no" is a `ConfigError` with one sentence for the user.

`settings` looks at the numbers, and whether wandb and the path of --resume are there; `resolved` at a configuration
without open questions (`shared.config.resolve`); `memory` and `run_directory` look at the machine.
"""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import fields, replace

from shared.config import combinations
from shared.config.run_schedule import MOST_PRIORITIES, make_run_schedule
from shared.config.settings import STACK, Config
from shared.errors import ConfigError
from shared.network_spec import MOST_ATOMS, MOST_RETURN, MOST_WIDTH
from shared.text import PLAIN_NAME, count, flag_of, shown

MOST_EVAL_FRAMES = 4_000_000
"""Of an episode of an evaluation; an episode has 2^20 ticks for its draws (actors/evaluation.py)."""


def recorded(config: Config) -> None:
    """Check a configuration from a file as `settings` does; what it began with may be gone by now."""
    settings(replace(config, run=replace(config.run, resume=None, init_from=None, track="off")))


def settings(config: Config) -> None:
    """Check every number by itself and against the others, and every text."""
    _check_texts(config)
    for section in fields(config):
        ranges(getattr(config, section.name))
    combinations.check(config)
    play, learn, run = config.play, config.learn, config.run
    if play.envs % play.lane_envs:
        raise ConfigError(
            f"--envs {play.envs} cannot be divided into lanes of --lane-envs {play.lane_envs}; --lane-envs 1 takes any "
            f"number, else the nearest is --envs {max(1, round(play.envs / play.lane_envs)) * play.lane_envs}."
        )
    if learn.learning_starts > learn.total_steps:
        raise ConfigError(
            f"Nothing would be learned: --learning-starts {learn.learning_starts:_} is more than "
            f"--total-steps {learn.total_steps:_}."
        )
    if learn.learning_starts < learn.batch_size:
        raise ConfigError(
            f"--learning-starts {learn.learning_starts:_} must be at least --batch-size {learn.batch_size:_}."
        )
    if learn.replay_size < learn.batch_size:
        raise ConfigError(
            f"--replay-size {learn.replay_size:_} is smaller than one batch, --batch-size {learn.batch_size:_}."
        )
    run_schedule = make_run_schedule(config)
    if learn.replay_size // play.envs < run_schedule.round_ticks:
        raise ConfigError(
            f"--replay-size {learn.replay_size:_} is smaller than one round, which has "
            f"{run_schedule.round_steps:_} steps."
        )
    if run_schedule.priorities > MOST_PRIORITIES:
        raise ConfigError(
            f"--replay-size {learn.replay_size:_} is more than {MOST_PRIORITIES:_}, the most for --prioritized."
        )
    if config.explore.epsilon_end > config.explore.epsilon_start:
        raise ConfigError(
            f"--epsilon-end {config.explore.epsilon_end} is more than --epsilon-start {config.explore.epsilon_start}."
        )
    if run.resume is not None and run.init_from is not None:
        raise ConfigError("--resume continues a run and --init-from begins a new one: give one of them.")
    if run.track == "wandb" and importlib.util.find_spec("wandb") is None:
        raise ConfigError("--track wandb needs the package wandb, which is not installed: say pip install wandb.")
    if run.resume is not None and not os.path.exists(run.resume):  # which raises for no path
        raise ConfigError(f"--resume {run.resume} does not exist.")


def resolved(config: Config) -> None:
    """Check what `shared.config.resolve.resolve` filled in, together with what the user said."""
    play, machine = config.play, config.machine
    lanes = play.envs // play.lane_envs
    assert machine.actors is not None
    assert machine.inference_batch is not None
    if machine.actors > lanes:
        raise ConfigError(
            f"--actors {machine.actors} is more than the {count(lanes, 'lane')} of "
            f"--envs {play.envs} in lanes of {play.lane_envs}; every actor needs one, and two to work while it waits."
        )
    if machine.inference_batch % play.lane_envs or play.envs % machine.inference_batch:
        raise ConfigError(
            f"--inference-batch {machine.inference_batch} must be a multiple of --lane-envs {play.lane_envs} that "
            f"divides --envs {play.envs}."
        )
    run_schedule = make_run_schedule(config)
    least = STACK + run_schedule.n_step - 1
    if run_schedule.window_ticks < least:
        raise ConfigError(
            f"--replay-size {config.learn.replay_size:_} holds {run_schedule.window_ticks} ticks of --envs "
            f"{play.envs}, fewer than the {least} that an observation with --n-step {run_schedule.n_step} needs; "
            f"{least * play.envs:_} is the least."
        )
    if machine.device == "cpu":
        for name, word, advice in _FOR_CUDA:
            if getattr(machine, name) == word:
                raise ConfigError(f"{flag_of(name)} {word} is for CUDA devices; {advice}")


def episodes(number: int | None, seed: int) -> None:
    """Refuse episodes that cannot be played: `number` of them, None being as many as the protocol says."""
    if number is not None and number < 1:
        raise ConfigError(f"--episodes {number} must be at least 1.")
    if seed < 0:
        raise ConfigError(f"--seed {seed} must not be negative.")


_MOST = 1 << 62
"""Of any setting: what is made of it must fit into 64 bits."""
_AT_LEAST_ONE = frozenset(
    {"envs", "lane_envs", "total_steps", "round_steps", "train_every", "batch_size", "replay_size", "learning_starts"}
    | {"publish_every_updates", "snapshot_every_steps", "eval_envs", "eval_episodes", "eval_max_frames", "actors"}
    | {"learner_threads", "inference_threads", "inference_batch"}
    | {"iqn_samples", "iqn_policy_samples", "n_step", "width", "importance_steps"}
)
_FOR_CUDA = (
    ("precision", "tf32", "on a CPU say fp32 or bf16."),
    ("replay_on", "device", "on a CPU the learner reads shared memory anyway."),
    ("mps", "on", "on a CPU there is no GPU to share."),
)
_NOT_NEGATIVE = frozenset(
    {"epsilon_steps", "eval_every_steps", "seed", "checkpoint_every_minutes", "epsilon_ladder", "graph_updates"}
)
_SHARE = frozenset(
    {"discount", "epsilon_start", "epsilon_end", "importance_start", "importance_end"}
    | {"priority_exponent", "munchausen_alpha", "eval_epsilon"}
)
_POSITIVE = frozenset({"learning_rate", "optimizer_epsilon", "noisy_std", "munchausen_temperature", "clip_gradient"})
_BELOW_ONE = frozenset({"optimizer_decay"})
_NEGATIVE = frozenset({"munchausen_floor"})
_AT_MOST = {
    "width": MOST_WIDTH,
    "iqn_samples": MOST_ATOMS,
    "iqn_policy_samples": MOST_ATOMS,
    "noisy_std": 100.0,
    "eval_max_frames": MOST_EVAL_FRAMES,
    "v_min": MOST_RETURN,
    "v_max": MOST_RETURN,
}
"""By amount."""


def _check_texts(config: Config) -> None:
    """Each text and path alone: config.json holds all of them, and readers of a run count on them."""
    for section in fields(config):
        for name, value in vars(getattr(config, section.name)).items():
            try:
                str(value).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{flag_of(name)} {str(value)!a} is not UTF-8: name another.") from None
    for name in ("env", "game"):
        value = getattr(config.play, name)
        if value is not None and not PLAIN_NAME.fullmatch(value):
            raise ConfigError(
                f"{flag_of(name)} {value!r} cannot be the name of an env or a game: letters, digits and . _ : / - may "
                "be in it."
            )


def ranges(section: object) -> None:
    """Check each number of a section of the configuration, alone."""
    for name, value in vars(section).items():
        if value is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and abs(value) >= _MOST:
            raise ConfigError(f"{flag_of(name)} {shown(value):.80} must be below {_MOST:_}.")
        if not math.isfinite(value):
            raise ConfigError(f"{flag_of(name)} {value} must be a finite number.")
        if name in _AT_LEAST_ONE and value < 1:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must be at least 1.")
        if name in _NOT_NEGATIVE and value < 0:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must not be negative.")
        if name in _SHARE and not 0 <= value <= 1:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must lie between 0 and 1.")
        if name in _POSITIVE and value <= 0:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must be above 0.")
        if name in _BELOW_ONE and not 0 <= value < 1:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must be at least 0 and below 1.")
        if name in _NEGATIVE and value >= 0:
            raise ConfigError(f"{flag_of(name)} {shown(value)} must be below 0.")
        if name in _AT_MOST and abs(value) > _AT_MOST[name]:
            raise ConfigError(f"{flag_of(name)} {shown(value)} is beyond {shown(_AT_MOST[name])}, the most there is.")
