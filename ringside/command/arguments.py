"""Parsing of command-line arguments into dataclasses, and of training options into a `Config`."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from ringside.command import TASKS
from ringside.command.option import Option, options_of, page, values_in
from ringside.run.config_file import DEFAULT_PRESET, config_of_call, read_config
from ringside.zoo.catalogue import weights_in
from shared.config.method_declaration import method_declaration, method_names
from shared.config.sections import EvalActions
from shared.config.settings import Config, unused_settings
from shared.config.trust import load_plugin
from shared.env_name import with_kwargs
from shared.errors import ConfigError
from shared.text import PROGRAM, UNSET, as_spelt, flag_of

COMMON = {
    "What to play": ("game", "env", "env_kwargs", "envs"),
    "How to learn": ("preset", "total_steps", "learning_rate", "seed"),
    "Evaluation beside training": ("eval_every_steps",),
    "Machine": ("actors", "device"),
    "Files and display": ("config", "run_dir", "resume", "init_from", "track", "plain"),
}
"""Settings of a run that --help shows, by group; --help all shows the others, too."""
_Options = TypeVar("_Options")
_Choices = TypeVar("_Choices", bound="Choices")


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options that say which trained agent is meant."""

    load: Path
    """Run directory, checkpoint, file of weights, or an agent of the zoo by its name: pong."""
    env: str | None = None
    """The env that the agent was trained on, where that is module:factory or module:Id-v0; no file chooses code."""
    env_kwargs: str | None = None
    """Keyword arguments of --env, as in training."""
    plugin: str | None = None
    """The plug-in that the agent was trained with (docs/extending.md); no file chooses code."""
    network: str | None = None
    """The network that the agent was trained with, where that is module:Class; no file chooses code."""
    zoo: Path | None = None
    """The folder zoo of a clone, for agents that this installation lacks; other weights are refused."""

    def __post_init__(self) -> None:
        if self.zoo is not None:
            object.__setattr__(self, "load", weights_in(self.zoo, self.load))

    @property
    def named(self) -> dict[str, Any]:
        """Keyword arguments env, with its own arguments, plugin and network. Raises `ConfigError`."""
        env = self.env if self.env_kwargs is None else with_kwargs(self.env, self.env_kwargs)
        return {"env": env, "plugin": self.plugin, "network": self.network}


@dataclass(frozen=True, kw_only=True)
class PlayingOptions(AgentOptions):
    """The options that say which trained agent plays, and by which rules."""

    seed: int = 1
    """Seed of no-ops, epsilon, sticky and sampled actions: with the same, all tasks play the same episodes."""
    eval_epsilon: float | None = None
    """Chance of a random action; default: that of the run that trained the agent."""
    eval_max_frames: int | None = None
    """Emulator frames after which an episode is cut, no-ops not counted; default: that of the run."""
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
    rare: ClassVar[Sequence[str]] = ()
    """Options of the task itself that only --help all shows."""

    config: Path | None = None
    """Settings from a TOML file or a run; options replace them (docs/configuration.md)."""
    preset: str = DEFAULT_PRESET
    """Defaults of all other options, from a paper or our own; ppo-quick: for a first run."""
    env_kwargs: str | None = None
    """Keyword arguments of --env, such as size=5,hard=true; they become part of its name, ID@size=5,hard=true."""


def config_of(options: Choices) -> Config:
    """Configuration of the options, unchecked."""
    return Config(**options.sections)


def parse(kind: type[_Options], arguments: Sequence[str], task: str) -> _Options:
    """Values for the fields of a dataclass from flat flags. Exits with 0 after --help, which shows its docstring.

    Raises:
        ConfigError: there is no such option, or its value is missing or wrong.
    """
    options, (words, help_) = options_of(kind), _without_help(arguments)
    if help_ is not None:
        _show(kind, task, options)
    return kind(**values_in(words, options, TASKS))


def parse_choices(kind: type[_Choices], arguments: Sequence[str], task: str) -> _Choices:
    """As `parse`, with the defaults of --preset or of the run to --resume. --help shows `COMMON`, --help all the rest.

    Raises:
        ConfigError: as `parse` does, and for options that the task replaces, or without effect with the others.
    """
    words, help_ = _without_help(arguments)
    _load_plugin(words)
    own = options_of(kind)
    given = values_in(words, [*own, *setting_options(Config(), method_names())], TASKS)
    for name in kind.replaced.keys() & given.keys():
        instead = flag_of(kind.replaced[name])
        raise ConfigError(f"{task} sets {flag_of(name)} itself: omit it and use {instead}.")
    mine = {option.name: given.pop(option.name) for option in own if option.name in given}
    kwargs, preset, file = (mine.get(name) for name in ("env_kwargs", "preset", "config"))
    config = config_of_call(preset, file, given if kwargs is None else given | {"env_kwargs": kwargs})
    preset = preset or (file and read_config(file).preset) or DEFAULT_PRESET
    options = kind(**config.sections, **mine | {"preset": preset})
    if help_ is not None:
        hidden = {*unused_settings(method_declaration(config.algorithm.method)), *kind.replaced}
        known = [*options_of(options), *setting_options(config)]
        shown = [option for option in known if option.name not in hidden]
        _show(kind, task, shown if help_ == "all" else _common(kind, shown), short=help_ != "all")
    return options


def setting_options(config: Config, methods: Sequence[str] = ()) -> list[Option]:
    """Options of the settings of runs, with their values in `config`, and those of further methods."""
    parts = [*(method_declaration(name).settings for name in methods), *config.sections.values()]
    found = [
        option
        for part in (*parts, config.algorithm.settings)
        for option in options_of(part, (part.__doc__ or "").partition("\n")[0].rstrip("."))
    ]
    return list({option.name: option for option in found}.values())


def _common(kind: type[Choices], options: Sequence[Option]) -> list[Option]:
    """The options of a task itself, and those in `COMMON` by their groups there."""
    known = {option.name: option for option in options}
    titles = {name: title for title, names in COMMON.items() for name in names}
    mine = {item.name for item in fields(kind)}.difference(kind.rare, titles)
    own = [option.name for option in options if option.name in mine]
    found = [known[name] for name in (*own, *titles) if name in known]
    return [option._replace(title=titles.get(option.name, option.title)) for option in found]


def _without_help(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without a request for help, and the word behind that; None: there is none."""
    words = list(arguments)
    for place, word in enumerate(words):
        if word in ("-h", "--help"):
            more = words[place + 1 : place + 2] == ["all"]
            return words[:place] + words[place + 1 + more :], "all" if more else ""
    return words, None


def _load_plugin(words: Sequence[str]) -> None:
    """Load the plug-in that the words name: it may add options, and values of them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--plugin", nargs="?")
    plugin = parser.parse_known_args(as_spelt(words))[0].plugin
    load_plugin(None if plugin == UNSET else plugin)


def _show(kind: type, task: str, options: Sequence[Option], *, short: bool = False) -> NoReturn:
    """Print a page of --help, whose description is the docstring of the options."""
    program, description = (PROGRAM if task == "train" else f"{PROGRAM} {task}"), inspect.cleandoc(kind.__doc__ or "")
    if task == "train":
        others = ", ".join(each for each in TASKS if each != task)
        description += f" Other tasks, as the first word: {others}. {PROGRAM} help TASK explains one,"
        description += " help games and help presets list games and presets."
    description += f" {program} --help all lists every option." if short else ""
    print(page(program, description, options, short=short), end="", flush=True)
    sys.exit(0)
