"""Parsing of command-line arguments into dataclasses, and of training options into a `Config`."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import tyro

from ringside import planning
from ringside.settings.config_file import read_config
from shared.config.combinations import require_used
from shared.config.field_checks import range_hint, ranges_of, types_of
from shared.config.method_declaration import method_declaration, method_names, methods_with
from shared.config.presets import PRESETS
from shared.config.renamed_settings import current_words
from shared.config.settings import Algorithm, Config, EvalActions, foreign_setting, unused_settings
from shared.errors import ConfigError
from shared.network_spec import network_names
from shared.text import PROGRAM, UNSET, flag_in, flag_of

LAUNCHER = Path(__file__).resolve().parents[2] / "launch.py"
"""Path of the program, for tasks that start it again."""
PLACEHOLDERS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""Placeholder in --help for the value of an option, by type."""
CHOICES = {"method": method_names, "network": network_names}
"""Options whose values can be registered, with the function that lists these for --help."""
_PLAIN = "plain_section"
"""Class attribute with the original class of a section from `with_ranges`."""
_Options = TypeVar("_Options")
_Choices = TypeVar("_Choices", bound="Choices")


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options that say which trained agent plays, and by which rules."""

    load: Path | None = None
    """Run directory, checkpoint, file of weights, or an agent of the zoo by its name: pong."""
    env: str | None = None
    """The env that the agent was trained on, where that is module:factory or module:Id-v0; no file chooses code."""
    plugin: str | None = None
    """The plug-in that the agent was trained with (docs/extending.md); no file chooses code."""
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


@dataclass(frozen=True)
class Choices(Config):
    """The options that make a configuration."""

    config: Path | None = None
    """Settings from a file, under single options: TOML, or a run (its config.json), or the name of a game with tuned
    settings (docs/configuration.md)."""
    preset: str = "nature"
    """Defaults of all options below: quick is for an hour rather than days, the others are papers' own settings."""


def config_of(options: Choices) -> Config:
    """Configuration from the options, unchecked."""
    sections = {item.name: _plain(getattr(options, item.name)) for item in fields(Config)}
    sections["algorithm"] = replace(sections["algorithm"], settings=_plain(options.algorithm.settings))
    return Config(**sections)


def parse_choices(kind: type[_Choices], arguments: Sequence[str], program: str, description: str) -> _Choices:
    """As `parse`, with the defaults of --preset or of the run to --resume."""

    arguments = current_words(arguments)
    preset, resume, env, plugin, config, method = _defining_options(arguments)
    start = planning.starting_point(preset, resume, env, plugin, config)
    if preset is None and config is not None:
        preset = read_config(config).preset
    if method in method_names():
        start = start.with_settings(method=method)
    _require_own(arguments, start.algorithm)
    hidden = unused_settings(method_declaration(start.algorithm.method))
    sections = {item.name: with_ranges(getattr(start, item.name), hidden) for item in fields(Config)}
    own = with_ranges(start.algorithm.settings)
    sections["algorithm"] = replace(sections["algorithm"], settings=own)
    names = Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(PRESETS)}}}")]
    body = [("preset", names, field(default=preset or "nature"))]
    shown = make_dataclass(kind.__name__, body, bases=(kind,), frozen=True)
    return parse(shown, arguments, program, description, shown(**sections))


def _require_own(arguments: Sequence[str], algorithm: Algorithm) -> None:
    """Raise `ConfigError` for an option of other methods only, or without an effect on this one."""
    flags = [flag_in(word) for word in arguments if word.startswith("--")]
    for name in (flag.removeprefix("--").replace("-", "_") for flag in flags):
        if methods_with(name) and not hasattr(algorithm.settings, name):
            raise ConfigError(foreign_setting(name, algorithm.method))
        require_used([name], algorithm.method)


def with_ranges(section: Any, hidden: Container[str] = ()) -> Any:
    """The section as an instance of a subclass whose --help shows the ranges of its fields, without those `hidden`."""
    kind = type(section)
    hints, ranges = types_of(kind), ranges_of(kind)
    body: list[tuple[str, Any, Any]] = []
    for name in CHOICES.keys() & hints.keys():
        shown = tyro.conf.arg(metavar=f"{{{','.join(CHOICES[name]())}}}")
        body.append((name, Annotated[str, shown], field(default=getattr(section, name))))
    for name in [name for name in hints if name in hidden]:
        body.append((name, Annotated[hints[name], tyro.conf.Suppress], field(default=getattr(section, name))))
    for name, meta in ranges.items():
        if name in hidden:
            continue
        number = int if int in (hints[name], *get_args(hints[name])) else float
        shown = tyro.conf.arg(metavar=f"{PLACEHOLDERS[number]} {range_hint(meta)}")
        body.append((name, Annotated[hints[name], shown], field(default=getattr(section, name))))
    if not body:
        return section
    shown_kind = make_dataclass(kind.__name__, body, bases=(kind,), frozen=True, namespace={_PLAIN: kind})
    return shown_kind(**vars(section))


def _plain(section: Any) -> Any:
    """The inverse of `with_ranges`."""
    kind = getattr(section, _PLAIN, None)
    return section if kind is None else kind(**vars(section))


def _defining_options(arguments: Sequence[str]) -> tuple[str | None, ...]:
    """The options that determine the defaults of all others, and --env. The full parser reports their errors."""
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    names = ("preset", "resume", "env", "plugin", "config", "method")
    for name in names:
        parser.add_argument(flag_of(name), nargs="?")
    found = vars(parser.parse_known_args(arguments)[0])
    return tuple(found[name] for name in names)


def parse(
    kind: type[_Options], arguments: Sequence[str], program: str, description: str, default: _Options | None = None
) -> _Options:
    """Parse flat flags for the fields of a dataclass. Exits with code 2 on an error, with 0 after --help."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def number_or_unset(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        """Show integers with underscores, and treat `int | None` as an optional number."""
        inner = [kind for kind in get_args(info.type) or (info.type,) if kind is not type(None)]
        if len(inner) != 1 or inner[0] not in PLACEHOLDERS or (inner[0] is not int and not get_args(info.type)):
            return None
        may_be_unset = type(None) in get_args(info.type)

        def read(word: str) -> Any:
            if may_be_unset and word == UNSET:
                return None
            return _whole_number(word) if inner[0] is int else inner[0](word)

        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=PLACEHOLDERS[inner[0]],
            instance_from_str=lambda words: read(words[0]),
            is_instance=lambda value: value is None or isinstance(value, inner[0]),
            str_from_instance=lambda value: [
                UNSET if value is None else f"{value:_}" if isinstance(value, int) else str(value)
            ],
        )

    return tyro.cli(
        kind,
        prog=program,
        description=description,
        args=list(arguments),
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.OmitArgPrefixes,),
        registry=registry,
    )


def _whole_number(text: str) -> int:
    """ "50_000_000" and "50000000"."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
