"""Validation of a configuration. A refusal is a `ConfigError` of one sentence for the user.

`settings` checks what a user gave, `recorded` what a file of a run holds, and `resolved` what `shared.config.resolve`
filled in. `episodes`, `seed_of_play` and `amount` check options of tasks.
"""

from __future__ import annotations

import importlib.util
from dataclasses import fields, replace
from typing import Any

from shared.config.checks import combinations
from shared.config.checks.field_checks import MOST, check_ranges
from shared.config.method_declaration import method_declaration
from shared.config.run_schedule import MOST_PRIORITIES, make_run_schedule
from shared.config.sections import INEXACT_SCHEDULES
from shared.config.settings import Config, ResolvedConfig
from shared.config.trust import WANDB_SETTINGS
from shared.env_name import parse_env_name
from shared.errors import ConfigError, missing_package
from shared.files.plain_files import exists
from shared.network_spec import network_names
from shared.text import PLAIN_NAME, count, flag_of, require_name, shown

MOST_EPISODES = 100_000
"""Bound of `--episodes`, far above the episodes of any protocol; lists of that length fit into memory."""

_DROPPED: Any = dict.fromkeys(("resume", "init_from", *WANDB_SETTINGS))


def recorded(config: Config) -> None:
    """Check a configuration from a file as `settings` does; what it began with may be gone by now."""
    settings(replace(config, run=replace(config.run, track="off", **_DROPPED)))


def settings(config: Config) -> None:
    """Check every number by itself and against the others, and every text."""
    _check_texts(config)
    require_name("--network", config.learn.network, network_names())
    ranges(config)
    combinations.check(config)
    play, run = config.play, config.run
    causes = [f"--schedule {schedule}" for schedule in INEXACT_SCHEDULES if schedule == config.learn.schedule]
    causes += ["--deterministic off"] if config.machine.deterministic == "off" else []
    if run.require_exact and causes:
        raise ConfigError(f"--require-exact refuses {causes[0]}, whose weights no other run repeats: omit one of them.")
    if play.emulators % play.lane_envs:
        raise ConfigError(
            f"--envs {play.envs} cannot be divided into lanes of --lane-envs {play.lane_envs}; --lane-envs 1 takes any "
            f"number, else the nearest is --envs {max(1, round(play.envs / play.lane_envs)) * play.lane_envs}."
        )
    if not method_declaration(config.algorithm.method).on_policy and not play.workers:
        _check_replay(config)
    if config.explore.epsilon_end > config.explore.epsilon_start:
        raise ConfigError(
            f"--epsilon-end {config.explore.epsilon_end} is more than --epsilon-start {config.explore.epsilon_start}."
        )
    if run.resume is not None and run.init_from is not None:
        raise ConfigError("--resume continues a run and --init-from begins a new one: give one of them.")
    if run.track == "off":
        for name in WANDB_SETTINGS:
            if getattr(run, name) is not None:
                raise ConfigError(f"{flag_of(name)} is for --track wandb: pass that, too.")
    if config.evaluate.eval_video and not config.evaluate.eval_every_steps:
        raise ConfigError("--eval-video films evaluations beside training: pass --eval-every-steps N, too.")
    if run.track == "wandb" and importlib.util.find_spec("wandb") is None:
        raise missing_package("--track wandb", "wandb", "wandb")
    if run.resume is not None and not exists(run.resume):
        raise ConfigError(f"--resume {run.resume} does not exist.")


def ranges(config: Config) -> None:
    """Check every number by itself."""
    for section in fields(config):
        check_ranges(getattr(config, section.name))
    check_ranges(config.algorithm.settings)


def _check_replay(config: Config) -> None:
    """Refuse a replay buffer that nothing could be learned from, or that the tree of priorities cannot hold."""
    play, learn = config.play, config.learn
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


def resolved(config: ResolvedConfig) -> None:
    """Check what `shared.config.resolve.resolve` filled in, together with what the user said."""
    play, machine = config.play, config.machine
    lanes = play.emulators // play.lane_envs
    if play.workers:
        _check_processes_of_workers(config)
    elif machine.actors > lanes:
        raise ConfigError(
            f"--actors {machine.actors} is more than the {count(lanes, 'lane')} of "
            f"--envs {play.envs} in lanes of {play.lane_envs}; every actor needs one, and two to work while it waits."
        )
    if machine.inference_batch % play.lane_envs or play.emulators % machine.inference_batch:
        raise ConfigError(
            f"--inference-batch {machine.inference_batch} must be a multiple of --lane-envs {play.lane_envs} that "
            f"divides {'the emulators of --workers' if play.workers else '--envs'} {play.workers or play.envs}."
        )
    run_schedule = make_run_schedule(config)
    least = play.frame_stack + run_schedule.n_step - 1
    if not run_schedule.method.on_policy and not play.workers and run_schedule.window_ticks < least:
        raise ConfigError(
            f"--replay-size {config.learn.replay_size:_} holds {run_schedule.window_ticks} ticks of --envs "
            f"{play.envs}, fewer than the {least} that an observation with --n-step {run_schedule.n_step} needs; "
            f"{least * play.envs:_} is the least."
        )
    if machine.acts_on == "cpu" and machine.acting_precision == "tf32":
        raise ConfigError("--acting-precision tf32 is for CUDA devices; on a CPU pass fp32 or bf16.")
    if not play.workers:
        combinations.check_shards(config)
    if machine.device == "cpu":
        for name, word, advice in _FOR_CUDA:
            if getattr(machine, name) == word:
                raise ConfigError(f"{flag_of(name)} {word} is for CUDA devices; {advice}")


def _check_processes_of_workers(config: ResolvedConfig) -> None:
    """Refuse more processes than workers, and other sizes than theirs."""
    play, machine, alone = config.play, config.machine, config.learn.schedule == "async"
    if machine.actors > play.workers:
        raise ConfigError(
            f"--actors {machine.actors} is more than --workers {play.workers}, each of which runs on one process."
        )
    only = dict.fromkeys(("learner_ranks", "learner_threads", "learner_shards", "inference_threads"), 1)
    for name, expected in (only | ({"inference_batch": play.lane_envs} if alone else {})).items():
        if (value := getattr(machine, name)) not in (None, expected):
            raise ConfigError(
                f"{flag_of(name)} {value} cannot be with --schedule {config.learn.schedule}, whose workers compute for "
                "themselves: omit it."
            )


def episodes(number: int | None, seed: int) -> None:
    """Refuse episodes that cannot be played: `number` of them, None being as many as the protocol says."""
    if number is not None:
        require_between("--episodes", number, MOST_EPISODES)
    seed_of_play(seed)


def seed_of_play(seed: int) -> None:
    """Refuse a seed of episodes that does not fit into 64 bits."""
    if seed < 0:
        raise ConfigError(f"--seed {seed} must not be negative.")
    if seed >= MOST:
        raise ConfigError(f"--seed {seed:_} must be below {MOST:_}.")


def require_between(flag: str, number: int, most: int) -> None:
    """Refuse a number of episodes, runs or frames to work through that is below 1 or above the most."""
    if not 1 <= number <= most:
        raise ConfigError(f"{flag} {shown(number):.80} must lie between 1 and {most:_}.")


_FOR_CUDA = (
    ("precision", "tf32", "on a CPU pass fp32 or bf16."),
    ("replay_on", "device", "on a CPU the learner reads shared memory anyway."),
)


def _check_texts(config: Config) -> None:
    """Check each text and path alone: config.json holds all of them, and readers of a run count on them."""
    for section in fields(config):
        for name, value in vars(getattr(config, section.name)).items():
            try:
                str(value).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{flag_of(name)} {str(value)!a} is not UTF-8: name another.") from None
    if config.play.env is not None:
        parse_env_name(config.play.env)
    for name in ("env", "game"):
        value = getattr(config.play, name)
        if value is not None and not PLAIN_NAME.fullmatch(value):
            raise ConfigError(
                f"{flag_of(name)} {value!r} cannot be the name of an env or a game: letters, digits and "
                ". _ : / @ = , - may be in it."
            )
