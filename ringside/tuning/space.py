"""Search spaces: ranges and choices of settings, from a TOML file or by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside import planning
from shared.config.checks.combinations import require_used
from shared.config.checks.field_checks import MOST, convert, types_of
from shared.config.method_declaration import method_declaration
from shared.config.sections import Evaluate
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE
from shared.errors import ConfigError
from shared.files.strict_json import read_toml

if TYPE_CHECKING:
    import optuna

LENGTH = ("total_steps", "eval_every_steps", "eval_episodes", "init_from", "stop_at")
"""Settings that a resume may change, but that make the evaluations of two trials incomparable."""
_EXCLUDED = (
    NEVER_FROM_A_FILE
    | {"env", "plugin", "game", "protocol", "seed", "checkpoint_replay", *LENGTH}
    | {item.name for item in fields(Evaluate)}
)
"""Settings that are the same in all trials."""


@dataclass(frozen=True)
class Dimension:
    """Values that one setting may have: a range of numbers, or choices."""

    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    """Search evenly over the logarithm."""
    step: float | int | None = None
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """The value of a trial."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        assert self.low is not None, "a range has two ends"
        assert self.high is not None, "a range has two ends"
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log, step=int(self.step or 1))
        return trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that must be valid for all of them to be: the ends, or all choices."""
        return self.choices or (self.low, self.high)


Space = dict[str, Dimension]


def default_space(config: Config) -> Space:
    """Settings that matter most with a method, over ranges that contain the published values."""
    space: Space = {"learning_rate": Dimension(1e-5, 1e-3, log=True)}
    settings = config.algorithm.settings
    if method_declaration(config.algorithm.method).on_policy:
        if hasattr(settings, "entropy_weight"):
            space["entropy_weight"] = Dimension(1e-4, 0.05, log=True)
        if hasattr(settings, "clip_ratio"):
            space["clip_ratio"] = Dimension(0.05, 0.3)
        if hasattr(settings, "trace"):
            space["trace"] = Dimension(0.8, 1.0)
    else:
        space["optimizer_epsilon"] = Dimension(1e-8, 1e-2, log=True)
        space["n_step"] = Dimension(1, 5)
        if config.explore.epsilon_start >= 0.1:  # the greatest end that is tried; noisy networks begin at 0
            space["epsilon_end"] = Dimension(0.01, 0.1, log=True)
    return space


def read_space(path: Path) -> Space:
    """Space of a TOML file with a table for each setting. Raises `ConfigError`, which names the file."""
    tables = read_toml("--space", path)
    try:
        return make_space(tables)
    except ConfigError as error:
        raise ConfigError(f"--space {path}: {error}") from error


def make_space(tables: Mapping[str, Any]) -> Space:
    """Space of plain values: {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}. Raises `ConfigError`."""
    space = {}
    for key, table in tables.items():
        name = key.replace("-", "_")
        if name in space:
            raise ConfigError(f"The space names {name} twice: keep one table.")
        space[name] = table if isinstance(table, Dimension) else _dimension(name, table)
    if not space:
        raise ConfigError("The space names no setting: it needs a table for each, such as [learning_rate].")
    return space


def checked_space(space: Space, config: Config, source: str = "The space") -> Space:
    """Return the space, with ranges of whole numbers for exactly the settings that are whole numbers.

    The ends of every range, and all choices, are tried with the first values of the other settings.

    Args:
        source: where the space comes from, for the sentence.

    Raises:
        ConfigError: a trial cannot have one of them.
    """
    for name in space:
        if name in _EXCLUDED:
            raise ConfigError(f"{source} names {name}, which is the same in all trials: omit it.")
    try:
        space = _with_types(space, config)
    except ConfigError as error:
        raise ConfigError(f"{source} cannot be used: {error}") from error
    first = {name: dimension.examples[0] for name, dimension in space.items()}
    for name, dimension in space.items():
        for value in dimension.examples:
            try:
                tried = config.with_settings(**(first | {name: value}))
                require_used(space, tried.algorithm.method)
                planning.check(tried)
            except ConfigError as error:
                raise ConfigError(f"{source} cannot be used: {error}") from error
    return space


def _with_types(space: Space, config: Config) -> Space:
    """The space with the ends and steps of its ranges as the types of their settings. Raises `ConfigError`."""
    if "method" in space:  # settings that several methods have are of one type
        config = config.with_settings(method=space["method"].examples[0])
    sections = {
        name: type(section)
        for section in (*config.sections.values(), config.algorithm.settings)
        for name in types_of(type(section))
    }

    def typed(name: str, dimension: Dimension) -> Dimension:
        # Choices stay as they are written: a trial converts them, and earlier studies stored them so.
        if dimension.choices or name not in sections:
            return dimension
        ends = {each: getattr(dimension, each) for each in ("low", "high", "step")}
        numbers = {each: convert(sections[name], name, value) for each, value in ends.items() if value is not None}
        return replace(dimension, **numbers)

    return {name: typed(name, dimension) for name, dimension in space.items()}


def space_to_json(space: Space) -> dict[str, dict[str, Any]]:
    """The space as plain values, which tell studies apart."""
    return {name: asdict(each) | {"choices": list(each.choices)} for name, each in space.items()}


def _dimension(name: str, table: Any) -> Dimension:
    sentence = (
        f"The space of {name} is {table!r:.120}; write low and high, with log = true or a step, or choices = [...]."
    )
    if not isinstance(table, Mapping) or not set(table) <= {"low", "high", "log", "step", "choices"}:
        raise ConfigError(sentence)
    choices, low, high = table.get("choices"), table.get("low"), table.get("high")
    if choices is not None:
        if not isinstance(choices, list | tuple) or not choices or set(table) != {"choices"}:
            raise ConfigError(sentence)
        if not all(isinstance(value, bool | int | float | str) for value in choices):
            raise ConfigError(sentence)
        return Dimension(choices=tuple(choices))
    log, step = table.get("log", False), table.get("step")
    numbers = [value for value in (low, high, step) if value is not None]
    if not isinstance(log, bool) or not all(type(value) in (int, float) for value in numbers):
        raise ConfigError(sentence)
    if not all(abs(value) < MOST and isfinite(value) for value in numbers):
        raise ConfigError(
            f"The space of {name} has a number that is not finite, or not below {MOST:_}: {table!r:.120}."
        )
    if low is None or high is None or low > high or (log and (low <= 0 or step is not None)):
        raise ConfigError(sentence)
    whole = isinstance(low, int) and isinstance(high, int)
    if step is not None and (step <= 0 or (whole and not isinstance(step, int))):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"The space of {name} has the step {step}: it must be {kind} above 0.")
    return Dimension(low, high, log, step)
