"""Parsing of command-line arguments into dataclasses, and of training options into a `Config`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from actors.env import EnvError
from actors.envs.atari import game_name, games
from ringside import __version__, planning
from ringside.options.help_page import full_page, short_page
from ringside.options.option import options_of
from ringside.options.values import filled, values_in
from ringside.settings.config_file import read_config
from ringside.tasks import TASKS
from shared.config.checks.combinations import require_consistent, require_used
from shared.config.method_declaration import method_declaration, method_names, methods_with
from shared.config.presets import PRESETS
from shared.config.sections import Algorithm, EvalActions
from shared.config.settings import Config, foreign_setting, unused_settings
from shared.env_name import env_named, with_kwargs
from shared.errors import ConfigError
from shared.network_spec import network_names
from shared.text import UNSET, closest, flag_in, flag_of, nearest_or_all

CHOICES: Mapping[str, Callable[[], Sequence[str]]] = {
    "method": method_names,
    "network": network_names,
    "preset": lambda: list(PRESETS),
}
"""Options whose values can be registered, with the function that lists these."""
COMMON = {
    "What to play": ("game", "env", "env_kwargs", "envs"),
    "How to learn": ("preset", "total_steps", "learning_rate", "seed"),
    "Evaluation beside training": ("eval_every_steps",),
    "Machine": ("actors", "device"),
    "Files and display": ("config", "run_dir", "resume", "init_from", "track", "plain"),
}
"""Settings of a run that --help shows, by group; --help all shows the others, too."""
HELP = ("-h", "--help")
_Options = TypeVar("_Options")
_Choices = TypeVar("_Choices", bound="Choices")


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options that say which trained agent is meant."""

    load: Path | None = None
    """Run directory, checkpoint, file of weights, or an agent of the zoo by its name: pong."""
    env: str | None = None
    """The env that the agent was trained on, where that is module:factory or module:Id-v0; no file chooses code."""
    env_kwargs: str | None = None
    """Keyword arguments of --env, as in training."""
    plugin: str | None = None
    """The plug-in that the agent was trained with (docs/extending.md); no file chooses code."""

    @property
    def trained_env(self) -> str | None:
        """Name of the env with its keyword arguments. Raises `ConfigError`."""
        return self.env if self.env_kwargs is None else with_kwargs(self.env, self.env_kwargs)


@dataclass(frozen=True, kw_only=True)
class PlayingOptions(AgentOptions):
    """The options that say which trained agent plays, and by which rules."""

    seed: int = 1
    """Seed of no-ops, epsilon, sticky and sampled actions: with the same, all tasks play the same episodes."""
    eval_epsilon: float | None = None
    """Chance of a random action; default: that of the run that trained the agent."""
    eval_max_frames: int | None = None
    """Emulator frames after which an episode is cut, no-ops not counted; default: as for --eval-epsilon."""
    eval_actions: Literal["auto", EvalActions] = "auto"
    """sample: actions drawn from the agent's policy; greedy: the best ones; auto: as in the evaluations of its run."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    @property
    def given_rules(self) -> dict[str, Any]:
        """The rules of `rules_of`."""
        return {name: getattr(self, name) for name in ("eval_epsilon", "eval_max_frames", "eval_actions")}


@dataclass(frozen=True)
class Choices(Config):
    """The options that make a configuration."""

    replaced: ClassVar[Mapping[str, str]] = {}
    """Settings that the task makes itself, each with the option to use instead; --help leaves them out."""

    config: Path | None = None
    """Settings from a TOML file or a run; options replace them (docs/configuration.md)."""
    preset: str = "nature"
    """Defaults of all other options, from a paper or our own; ppo-quick: for a first run."""
    env_kwargs: str | None = None
    """Keyword arguments of --env, such as size=5,hard=true; they become part of its name, ID@size=5,hard=true."""


def version_line() -> str:
    """Name and version of this program."""
    return f"Ringside {__version__}"


def unknown_task(word: str) -> ConfigError:
    """The error for a first word of the command that is no task; it may be meant as the value of an option."""
    if word in PRESETS:
        return ConfigError(f"{word} is a preset, not a task: pass --preset {word}.")
    if os.path.isdir(word):
        return ConfigError(f"{word} is no task: pass --resume {word} to continue a run, or eval --load {word}.")
    try:
        game = game_name(word)
    except EnvError:
        tasks = [*TASKS, "help", "version"]
        close = closest(word, [*tasks, *games()])
        advice = f"; did you mean --game {close}?" if close in games() else nearest_or_all(word, tasks)
        return ConfigError(f"There is no task {word!r:.60}{advice}")
    return ConfigError(f"{word} is a game, not a task: pass --game {game}.")


def config_of(options: Choices) -> Config:
    """Configuration from the options, unchecked. Raises `ConfigError` for --env-kwargs that no env can have."""
    config = Config(**options.sections)
    return config if options.env_kwargs is None else config.with_settings(env_kwargs=options.env_kwargs)


def parse_choices(
    kind: type[_Choices],
    arguments: Sequence[str],
    program: str,
    description: str,
) -> _Choices:
    """As `parse`, with the defaults of --preset or of the run to --resume. --help shows `COMMON`, --help all the rest.

    Raises:
        ConfigError: as `parse` does, and for options that the task replaces, or without effect with the others.
    """
    for name, instead in kind.replaced.items():
        if flag_of(name) in map(flag_in, arguments):
            raise ConfigError(f"{program.split()[-1]} sets {flag_of(name)} itself: omit it and use {flag_of(instead)}.")
    given = _defining_options(arguments)
    env = env_named(given.env, given.env_kwargs)
    start = planning.starting_point(given.preset, given.resume, env, given.plugin, given.config)
    preset = given.preset
    if preset is None and given.config is not None:
        preset = read_config(given.config).preset
    if given.method in method_names():
        start = start.with_settings(method=given.method)
    _require_own(arguments, start.algorithm)
    hidden = {*unused_settings(method_declaration(start.algorithm.method)), *kind.replaced}
    default = kind(**start.sections, preset=preset or "nature")
    return parse(kind, arguments, program, description, default, hidden, COMMON)


def _require_own(arguments: Sequence[str], algorithm: Algorithm) -> None:
    """Raise `ConfigError` for an option of other methods only, or without an effect on this one or beside another."""
    flags = [flag_in(word) for word in arguments if word.startswith("--")]
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags]
    for name in names:
        if methods_with(name) and not hasattr(algorithm.settings, name):
            raise ConfigError(foreign_setting(name, algorithm.method))
        require_used([name], algorithm.method)
    require_consistent(names)


class _DefiningOptions(NamedTuple):
    """The options that determine the defaults of all others."""

    preset: str | None
    resume: str | None
    env: str | None
    env_kwargs: str | None
    plugin: str | None
    config: str | None
    method: str | None


def _defining_options(arguments: Sequence[str]) -> _DefiningOptions:
    """The values of these options, unchecked; `parse` reports their errors."""
    found: dict[str, str] = {}
    for word, following in zip(arguments, [*arguments[1:], None], strict=False):
        flag, given = flag_in(word), word.partition("=")
        value = given[2] if given[1] else following
        if value is not None and (given[1] or not value.startswith("--")):
            found[flag] = value
    found = {flag: value for flag, value in found.items() if value != UNSET}
    return _DefiningOptions(*(found.get(flag_of(name)) for name in _DefiningOptions._fields))


def parse(
    kind: type[_Options],
    arguments: Sequence[str],
    program: str,
    description: str,
    default: _Options | None = None,
    hidden: Container[str] = (),
    common: Mapping[str, Sequence[str]] | None = None,
) -> _Options:
    """Values for the fields of a dataclass from flat flags. Exits with 0 after --help.

    Args:
        default: values of the options that are not given; None: those of the fields.
        hidden: options without effect, which --help leaves out.
        common: options that --help shows beside those of the task itself, by group; None: all.

    Raises:
        ConfigError: there is no such option, or its value is missing or wrong.
    """
    options = options_of(kind if default is None else default, CHOICES, hidden)
    asked = next((i for i, word in enumerate(arguments) if word in HELP), None)
    if asked is not None:
        if common is None or arguments[asked + 1 : asked + 2] == ["all"]:
            print(full_page(program, description, options), flush=True)
        else:
            more = f"{description} {program} --help all lists every option."
            print(short_page(program, more, options, common), flush=True)
        sys.exit(0)
    found = values_in(arguments, options, TASKS)
    if default is not None:
        return filled(default, options, found)
    required = {option.name: found[option.name] for option in options if option.default is MISSING}
    return filled(kind(**required), options, found)
