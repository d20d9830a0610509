"""Validation of a configuration. A refusal is a `ConfigError` of one sentence for the user.

`settings` checks what a user gave, `recorded` what a file of a run holds, and `resolved` what `shared.config.resolve`
filled in. `episodes`, `seed_of_play` and `require_between` check options of tasks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from shared.config import combinations
from shared.config.field_checks import MOST, check_ranges
from shared.config.settings import Config, ResolvedConfig
from shared.config.trust import WANDB_SETTINGS
from shared.env_name import parse_env_name
from shared.errors import ConfigError, missing_package
from shared.files.plain_files import exists
from shared.network_spec import network_names
from shared.text import PLAIN_NAME, flag_of, require_name, shown

MOST_EPISODES = 100_000
"""Bound of `--episodes`, far above the episodes of any protocol; lists of that length fit into memory."""

_DROPPED: Any = dict.fromkeys(("resume", "init_from", *WANDB_SETTINGS))


def recorded(config: Config) -> None:
    """Check a configuration from a file as `settings` does; what it began with may be gone by now."""
    settings(replace(config, run=replace(config.run, track="off", **_DROPPED)))


def settings(config: Config) -> None:
    """Check every number by itself and against the others, and every text."""
    run = config.run
    _check_texts(config)
    require_name("--network", config.learn.network, network_names())
    ranges(config)
    _refuse(combinations.conflicts(config))
    for name in WANDB_SETTINGS:
        if run.track == "off" and getattr(run, name) is not None:
            raise ConfigError(f"{flag_of(name)} is for --track wandb: pass that, too.")
    if run.track == "wandb" and importlib.util.find_spec("wandb") is None:
        raise missing_package("--track wandb", "wandb", "wandb")
    if config.evaluate.eval_video and importlib.util.find_spec("av") is None:
        raise missing_package("--eval-video", "av", "video")
    if run.resume is not None and not exists(run.resume):
        raise ConfigError(f"--resume {run.resume} does not exist.")


def resolved(config: ResolvedConfig) -> None:
    """Check what `shared.config.resolve.resolve` filled in, together with what the user said."""
    _refuse(combinations.conflicts_of_resolved(config))


def ranges(config: Config) -> None:
    """Check every number by itself."""
    for section in (*config.sections.values(), config.algorithm.settings):
        check_ranges(section)


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


def _refuse(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        raise ConfigError(sentence)


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
