"""Names of envs with keyword arguments and wrappers: `Id-v0@size=5,hard=true+module:Wrapper`.

The whole name is what a user passes to --env, and what a run, its weights and its checkpoints record. So arguments and
wrappers are part of the experiment, and the rule of trust holds for wrappers: no file chooses code (docs/trust.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.errors import ConfigError

Value = bool | int | float | str | None
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)=([\w./:-]*)")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


class EnvName(NamedTuple):
    """Parts of a name."""

    base: str
    """A Gymnasium id, `module:Id-v0` or `module:factory`."""
    arguments: dict[str, Value]
    """Keyword arguments of the id or factory."""
    wrappers: tuple[str, ...]
    """`module:Wrapper`, the innermost first."""


def parse_env_name(name: str) -> EnvName:
    """Parts of a name. Raises `ConfigError`."""
    body, *wrappers = name.split("+")
    base, at, listed = body.partition("@")
    arguments: dict[str, Value] = {}
    for word in listed.split(",") if at else ():
        found = _ARGUMENT.fullmatch(word)
        if found is None or found[1] in arguments:
            raise ConfigError(f"--env {name!r:.120} has the argument {word!r:.40}; write name=value, each name once.")
        arguments[found[1]] = _value(found[2])
    for wrapper in wrappers:
        if not all(wrapper.partition(":")):
            raise ConfigError(f"--env {name!r:.120} has the wrapper {wrapper!r:.60}; write module:Wrapper.")
    return EnvName(base, arguments, tuple(wrappers))


def env_name(base: str, *, wrappers: Sequence[str] = (), **arguments: Value) -> str:
    """Name of an env with keyword arguments and wrappers, for `env=`. Raises `ConfigError`.

        ringside.train(env=ringside.env_name("mine:factory", wrappers=["mine:Clip"], size=5), preset="quick")

    Args:
        wrappers: `module:Wrapper`, the innermost first.
        arguments: of the id or factory: numbers, texts without spaces, True, False or None.
    """
    listed = _listed(arguments)
    name = "+".join([f"{base}@{listed}" if listed else base, *wrappers])
    parsed = parse_env_name(name)
    if parsed != EnvName(base, arguments, tuple(wrappers)):
        raise ConfigError(
            f"The env {name!r:.120} cannot be named: its arguments are numbers and texts of plain characters."
        )
    return name


def env_named(env: str | None, kwargs: str | Mapping[str, Value] | None) -> str | None:
    """`env` with further keyword arguments as `with_kwargs` adds them, where both are given; else `env`."""
    return env if env is None or kwargs is None else with_kwargs(env, kwargs)


def with_kwargs(env: str | None, kwargs: str | Mapping[str, Value]) -> str:
    """Name of `env` with further keyword arguments: those of --env-kwargs, `size=5,hard=true`, or a mapping.

    Raises:
        ConfigError: there is no env, or an argument is malformed or given twice.
    """
    listed = kwargs if isinstance(kwargs, str) else _listed(kwargs)
    if env is None:
        raise ConfigError(f"--env-kwargs {listed:.80} has no effect without an environment: pass --env, too.")
    if not listed and not isinstance(kwargs, str):
        return env
    for word in listed.split(","):
        if not _ARGUMENT.fullmatch(word):
            raise ConfigError(
                f"--env-kwargs has the argument {word!r:.40}: write name=value, several separated by commas, with "
                "numbers and texts of plain characters."
            )
    body, plus, wrappers = env.partition("+")
    name = f"{body}{',' if '@' in body else '@'}{listed}{plus}{wrappers}"
    named = parse_env_name(name).arguments
    if not isinstance(kwargs, str) and any(named[key] != value for key, value in kwargs.items()):
        raise ConfigError(
            f"--env-kwargs {listed:.80} cannot be named: arguments are numbers and texts of plain characters."
        )
    return name


def _listed(arguments: Mapping[str, Value]) -> str:
    """Keyword arguments as they stand in a name."""
    return ",".join(f"{key}={_word(value)}" for key, value in arguments.items())


def _value(word: str) -> Value:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _word(value: Value) -> str:
    return next((word for word, known in _WORDS.items() if known is value), str(value))
