"""Options of the command line: fields of dataclasses, with the docstrings below them, read and shown by argparse.

Each mistake in the words is a `ConfigError` of one sentence.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from shared.config.field_checks import range_hint, ranges_of, types_of
from shared.config.method_declaration import method_names
from shared.config.presets import PRESETS
from shared.errors import ConfigError
from shared.network_spec import is_own, network_names
from shared.text import PROGRAM, UNSET, as_spelt, flag_of, nearest, require_name, shown, whole_number

_Value = TypeVar("_Value")
POSITIONAL = "positional"
Positional = Annotated[_Value, POSITIONAL]
"""Type of a field that is given by its place, without a flag."""
BARE, PLACE = "load", "RUN"
"""Option whose value may also stand by its place, and the name of that place."""

CHOICES: Mapping[str, Callable[[], Sequence[str]]] = {
    "method": method_names,
    "network": network_names,
    "preset": lambda: list(PRESETS),
}
"""Options whose values are named elsewhere, with the function that lists them; a network may be the user's, too."""
_KINDS = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}
"""Words for a value in a sentence, by its type."""
_INDENT = 26
"""Column of the texts in --help, and the longest list of choices that stands behind a flag."""


class Option(NamedTuple):
    """One option of a task."""

    name: str
    flag: str
    """Its flag, as `--help` spells it, or the name of its place."""
    title: str
    """Title of its group in --help."""
    kind: type
    """One of `_KINDS`, or bool."""
    default: Any
    """`MISSING` if it is required."""
    may_be_unset: bool
    choices: tuple[str, ...]
    """Possible values; empty: not limited to a list."""
    many: bool
    """True if any number of values is taken."""
    positional: bool
    owner: type
    """Class that declares it, with its range, and in its source its text."""

    @property
    def text(self) -> str:
        """The docstring of its field as one line."""
        return texts_of(self.owner).get(self.name, "")

    @property
    def range(self) -> str:
        """Range of a number as --help shows it; empty: none."""
        ranges = ranges_of(self.owner)
        return range_hint(ranges[self.name]) if self.name in ranges else ""

    @property
    def expected(self) -> str:
        """Its values in a sentence."""
        return f"one of {', '.join(self.choices)}" if self.choices else _KINDS[self.kind]


def options_of(start: Any, title: str = "Options") -> list[Option]:
    """Options of a dataclass, or of an instance of one, whose values are the defaults; sections are left out.

    Those that are required come first, then those that the class itself declares, then those of its bases.

    `title` is that of their group.
    """
    kind = start if isinstance(start, type) else type(start)
    types, annotated, own = types_of(kind), get_type_hints(kind, include_extras=True), inspect.get_annotations(kind)
    found = []
    for item in sorted(fields(kind), key=lambda item: (item.default is not MISSING, item.name not in own)):
        default = item.default if isinstance(start, type) else getattr(start, item.name)
        if is_dataclass(default) or (default is MISSING and item.default_factory is not MISSING):
            continue
        hint = types[item.name]
        inner, words = _value_of_hint(hint)
        listed = tuple(CHOICES[item.name]()) if item.name in CHOICES and default is not None else words
        unset, many = NoneType in get_args(hint), get_origin(hint) is tuple
        positional = POSITIONAL in getattr(annotated[item.name], "__metadata__", ())
        flag = item.name.upper() if positional else flag_of(item.name)
        found.append(Option(item.name, flag, title, inner, default, unset, listed, many, positional, kind))
    return found


@cache
def _value_of_hint(hint: Any) -> tuple[type, tuple[str, ...]]:
    """Type of a value, and the words that are possible; empty: not limited to a list."""
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    inner = [each for each in get_args(hint) if each not in (NoneType, ...)]
    return _value_of_hint(inner[0]) if inner else (hint, ())


@cache
def texts_of(kind: type) -> Mapping[str, str]:
    """Docstrings below the fields of a dataclass and its bases, each as one line; empty where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for node in ast.walk(_tree_of(base.__module__)):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                for pair in zip(node.body, node.body[1:], strict=False):
                    match pair:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[name] = " ".join(text.split())
    return found


@cache
def _tree_of(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # the module has no source
        return ast.Module([], [])


class Parser(argparse.ArgumentParser):
    """argparse without its sentences: words stay words, and those that it does not know are returned."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, exit_on_error=False, formatter_class=_Formatter, **rest)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -1e-3 is a value, too

    def take(self, options: Sequence[Option], short: bool | None = None) -> Parser:
        """Add options, by groups, with short or full texts; None: without. Returns the parser itself."""
        groups: dict[str, Any] = {}
        for option in options:
            title = "Arguments" if option.positional else option.title
            group = groups.get(title) or groups.setdefault(title, self.add_argument_group(title))
            more: dict[str, Any] = {"default": argparse.SUPPRESS}
            if short is not None:
                more["help"] = _help(option, short=short).replace("%", "%%")
            if option.kind is bool:
                group.add_argument(option.flag, action=argparse.BooleanOptionalAction, **more)
            elif option.positional:
                metavar, nargs = (f"{option.flag} ...", "*") if option.many else (option.flag, "?")
                group.add_argument(option.name, metavar=metavar, nargs=nargs, **more)
            else:
                if short is not None:
                    more["metavar"] = f"{_placeholder(option)} {'' if short else option.range}".rstrip()
                group.add_argument(option.flag, dest=option.name, **more)
                if option.name == BARE:
                    more |= {"metavar": PLACE, "help": f"The same as {option.flag} {PLACE}."}
                    self.add_argument_group("Arguments").add_argument(PLACE, nargs="?", **more)
        return self


class _Formatter(argparse.HelpFormatter):
    """Help that breaks no flag, in lines of a hundred columns at most."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_INDENT, width=min(100, shutil.get_terminal_size((80, 24)).columns))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def values_in(words: Sequence[str], options: Sequence[Option], tasks: Sequence[str] = ()) -> dict[str, Any]:
    """Values that the words give, by the names of the options. A flag given twice has its last value.

    Args:
        words: as typed, without the program and the task; behind `--` every word is a value by its place.
        options: those that the task has.
        tasks: first words of the command, for a better sentence about a word that follows no flag.

    Raises:
        ConfigError: there is no such option, or its value is missing or wrong.
    """
    cut, parser = [*words, "--"].index("--"), Parser(usage="").take(options)
    try:
        found, strays = parser.parse_known_intermixed_args([*as_spelt(words[:cut]), *words[cut:]])
    except argparse.ArgumentError as error:
        names = str(error.argument_name).split("/")
        if len(names) == 2:
            raise ConfigError(f"{names[0]} takes no value: pass {names[0]} or {names[1]}.") from None
        option = next(option for option in options if option.flag == names[0])
        raise ConfigError(f"{option.flag} needs a value: {option.expected}.") from None
    run = vars(found).pop(PLACE, None)
    if run is not None and vars(found).setdefault(BARE, run) is not run:
        raise ConfigError(f"{run:.60} and --load {found.load:.60} name two agents: pass one of them.")
    for word in strays:
        raise ConfigError(_unknown(word.split("=")[0], options) if word[:1] == "-" else _stray(word, options, tasks))
    for option in options:
        if option.default is MISSING and not hasattr(found, option.name):
            text = option.text.partition(";")[0].rstrip(".")
            raise ConfigError(f"{option.flag} is missing: {text[:1].lower()}{text[1:]}.")
    given = vars(found)
    return {option.name: _value_of(option, given[option.name]) for option in options if option.name in given}


def _value_of(option: Option, word: Any) -> Any:
    """The value that a word, or several, give an option. Raises `ConfigError` for a word that cannot be one."""
    if isinstance(word, list):
        return tuple(_value_of(option, each) for each in word)
    if isinstance(word, bool):
        return word
    if not word:
        raise ConfigError(f"The value of {option.flag} is empty: give {option.expected}, or omit it.")
    if option.may_be_unset and word == UNSET:
        return None
    if option.name == "preset" and word in set(method_names()).difference(PRESETS):
        known = ", ".join(name for name, preset in PRESETS.items() if preset.algorithm.method == word)
        others = f", or --preset with one of {known}" if known else ""
        raise ConfigError(f"{word} is a method, not a preset: pass --method {word}{others}.")
    if option.choices and not (option.name == "network" and is_own(word)):
        require_name(option.flag, word, option.choices)
    if option.kind is int:
        number = whole_number(word)
        if number is None:
            raise ConfigError(f"{option.flag} {word:.40} is not a whole number: write it as 20_000, 20k or 2e4.")
        return number
    try:
        return option.kind(word)
    except ValueError:
        raise ConfigError(f"{option.flag} {word:.40} is not a number.") from None


def _stray(word: str, options: Sequence[Option], tasks: Sequence[str]) -> str:
    """Sentence about a word that follows no option."""
    if word in tasks:
        return f"{word} is a task, the first word of the command: {PROGRAM} {word} ..."
    names = {option.name for option in options}
    choosing = [option.flag for option in options if word in option.choices]
    if len(choosing) == 1:
        advice = f"pass {choosing[0]} {word}"
    else:
        advice = "every value has one, as in --game pong" if "game" in names else "--help lists the options"
    return f"{word!r:.60} follows no option: {advice}."


_ELSEWHERE = {
    "--no-eval": "a run evaluates only with --eval-every-steps",
    "--render": f"{PROGRAM} watch shows a run, and {PROGRAM} play RUN an agent",
    "--seeds": f"pass --seed, or train several with {PROGRAM} suite --seeds",
    "--steps": "pass --total-steps to train, --episodes to evaluate",
    "--wandb": f"{PROGRAM} --track wandb sends a run there",
}
"""Flags of other libraries, with what to do here."""


def _unknown(flag: str, options: Sequence[Option]) -> str:
    """Sentence about a flag that there is not."""
    if flag in _ELSEWHERE:
        return f"There is no option {flag}: {_ELSEWHERE[flag]}."
    names = [option.flag.removeprefix("--") for option in options]
    names += [f"no-{option.flag[2:]}" for option in options if option.kind is bool]
    advice = nearest(flag.removeprefix("--"), names).replace("mean ", "mean --")
    return f"There is no option {flag:.60}{advice}"


def page(program: str, description: str, options: Sequence[Option], *, short: bool = False) -> str:
    """Page of --help, group by group; `short`: with texts up to their first clause."""
    places = [f"[{each.flag}{' ...' if each.many else ''}]" for each in options if each.positional]
    places += [f"[{PLACE}]" for each in options if each.name == BARE]
    parser = Parser(prog=program, description=description, usage=" ".join([program, "[options]", *places]))
    return parser.take(options, short).format_help()


def _placeholder(option: Option) -> str:
    listed = ",".join(option.choices)
    named = f"{{{listed}}}" if len(listed) <= _INDENT - 2 else "NAME"
    return named if option.choices else option.kind.__name__.upper()


def _help(option: Option, *, short: bool) -> str:
    """Text and default of an option; a long list of choices stands in the text."""
    text, default = option.text, _default(option)
    if _placeholder(option) == "NAME" and not set(option.choices) <= set(re.findall(r"[\w-]+", text)):
        text = f"{text} One of {', '.join(option.choices)}."
    if short:
        first, *others = re.split(r"(?<=\w\w)[.;](?: |$)", text)
        kept = [clause for clause in others if clause.startswith(("default: ", "0: "))]
        text = "; ".join([first, *kept]).rstrip(".") + "."
    return f"{re.sub(r'; default: [^;.]*(?=[;.])', '', text)} [{default}]" if default else text


def _default(option: Option) -> str:
    """Default of an option as it is typed; empty where there is none."""
    value = option.default
    if value is MISSING:
        return "required"
    if isinstance(value, bool):
        return "on" if value else ""
    if value is None or value == ():
        return "" if "default:" in option.text.lower() or option.positional else UNSET if option.range else ""
    return shown(value)
