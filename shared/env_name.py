"""Names of envs with keyword arguments: `Id-v0@size=5,hard=true`.

Runs, weights and checkpoints record --env and --env-kwargs in this form. So arguments are part of the experiment, and
a user repeats them where an env is named again (docs/trust.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from shared.errors import ConfigError

Value = bool | int | float | str | None
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)=([\w./:-]*)")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}
_PLAIN = "with numbers and texts of plain characters"


def parse_env_name(name: str) -> tuple[str, dict[str, Value]]:
    """A Gymnasium id, `module:Id-v0` or `module:factory`, and its keyword arguments. Raises `ConfigError`."""
    base, at, listed = name.partition("@")
    arguments: dict[str, Value] = {}
    for word in listed.split(",") if at else ():
        found = _ARGUMENT.fullmatch(word)
        if found is None or found[1] in arguments:
            raise ConfigError(
                f"--env-kwargs has the argument {word!r:.40}: write name=value, each name once, several separated by "
                f"commas, {_PLAIN}."
            )
        arguments[found[1]] = _value(found[2])
    return base, arguments


def env_name(base: str, **arguments: Value) -> str:
    """Name of an env with keyword arguments, for `env=`: numbers, texts without spaces, True, False or None.

        ringside.load_agent("runs/mine", env=ringside.env_name("mine:factory", size=5))

    Raises:
        ConfigError: an argument has no such name.
    """
    return with_kwargs(base, arguments)


def with_kwargs(env: str | None, kwargs: str | Mapping[str, Value]) -> str:
    """Name of `env` with further keyword arguments: those of --env-kwargs, `size=5,hard=true`, or a mapping.

    Raises:
        ConfigError: there is no env, or an argument is malformed or given twice.
    """
    if not isinstance(kwargs, str | Mapping):
        raise ConfigError(f"env_kwargs {kwargs!r:.80} is neither a text nor a mapping.")
    given = {} if isinstance(kwargs, str) else kwargs
    listed = kwargs if isinstance(kwargs, str) else ",".join(f"{key}={_word(value)}" for key, value in given.items())
    if env is None:
        raise ConfigError(f"--env-kwargs {listed:.80} has no effect without an environment: pass --env, too.")
    if kwargs == {}:
        return env
    name = f"{env}{',' if '@' in env else '@'}{listed}"
    named = parse_env_name(name)[1]
    if any(key not in named or named[key] != value for key, value in given.items()):
        raise ConfigError(f"--env-kwargs {listed:.80} cannot be named: write arguments {_PLAIN}.")
    return name


def _value(word: str) -> Value:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


def _word(value: Value) -> str:
    return next((word for word, known in _WORDS.items() if known is value), str(value))
