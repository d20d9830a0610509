"""Search spaces: ranges and choices of settings, from a TOML file or by default, as Optuna's distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ringside.run import planning
from shared.config.field_checks import convert, types_of
from shared.config.method_declaration import method_declaration
from shared.config.sections import Evaluate
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE
from shared.errors import ConfigError
from shared.files.strict_json import read_toml

LENGTH = ("total_steps", "eval_every_steps", "eval_episodes", "init_from", "stop_at")
"""Settings that a resume may change, but that make the evaluations of two trials incomparable."""
_EXCLUDED = (
    NEVER_FROM_A_FILE
    | {"env", "plugin", "game", "protocol", "seed", "checkpoint_replay", *LENGTH}
    | {item.name for item in fields(Evaluate)}
)
"""Settings that are the same in all trials."""

Space = dict[str, BaseDistribution]


def default_tables(config: Config) -> dict[str, dict[str, Any]]:
    """Settings that matter most with a method, over ranges that contain the published values."""
    tables = {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}
    if method_declaration(config.algorithm.method).on_policy:
        own = {
            "entropy_weight": {"low": 1e-4, "high": 0.05, "log": True},
            "clip_ratio": {"low": 0.05, "high": 0.3},
            "trace": {"low": 0.8, "high": 1.0},
        }
        return tables | {name: table for name, table in own.items() if hasattr(config.algorithm.settings, name)}
    tables |= {"optimizer_epsilon": {"low": 1e-8, "high": 1e-2, "log": True}, "n_step": {"low": 1, "high": 5}}
    if config.explore.epsilon_start >= 0.1:  # the greatest end that is tried; noisy networks begin at 0
        tables["epsilon_end"] = {"low": 0.01, "high": 0.1, "log": True}
    return tables


def make_space(given: str | Path | Mapping[str, Any] | None, config: Config) -> Space:
    """Space of a TOML file with a table for each setting, or of the same as a mapping; None: the default.

    The ends of every range, and all choices, are tried with the first values of the other settings.

    Raises:
        ConfigError: a table says nothing, or a trial cannot have one of its values.
    """
    source, space = "The space", dict[str, Any]()
    tables = default_tables(config) if given is None else given
    if not isinstance(tables, Mapping):
        source, tables = f"--space {tables}", read_toml("--space", Path(tables))
    try:
        for key, table in tables.items():
            name = key.replace("-", "_")
            if name in space:
                raise ConfigError(f"it names {name} twice: keep one table.")
            if name in _EXCLUDED:
                raise ConfigError(f"it names {name}, which is the same in all trials: omit it.")
            if name == "method" and isinstance(table, dict) and table.get("choices"):
                config = config.with_settings(method=table["choices"][0])  # what several methods have is of one type
            space[name] = _distribution(name, table, config)
        if not space:
            raise ConfigError("it names no setting: it needs a table for each, such as [learning_rate].")
        first = {name: values_of(each)[0] for name, each in space.items()}
        for name, each in space.items():
            for value in values_of(each):
                planning.check(config.with_settings(**(first | {name: value})))
    except ConfigError as error:
        raise ConfigError(f"{source} cannot be used: {error}") from error
    return space


def values_of(each: Any) -> tuple[Any, ...]:
    """Values that must be valid for all of them to be: the ends, or all choices."""
    return tuple(each.choices) if isinstance(each, CategoricalDistribution) else (each.low, each.high)


def _distribution(name: str, table: Any, config: Config) -> BaseDistribution:
    """The distribution of a table; whole numbers exactly for a setting that is one. Raises `ConfigError`."""
    sections = [type(each) for each in (*config.sections.values(), config.algorithm.settings)]
    section = next((each for each in sections if name in types_of(each)), None)
    try:
        if set(table) == {"choices"}:
            return CategoricalDistribution(table["choices"])
        numbers = {each: table[each] for each in ("low", "high", "step") if each in table}
        if section is not None:  # else trying the ends says that there is no such setting
            numbers = {each: convert(section, name, number) for each, number in numbers.items()}
        kind = IntDistribution if type(numbers["low"]) is int else FloatDistribution
        return kind(**(table | numbers))
    except ConfigError:
        raise
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"the space of {name} is {table!r:.120} ({error}): write low and high, with log = true or a step, or "
            "choices = [...]."
        ) from error
