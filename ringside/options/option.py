"""Options of the command line, read from the fields of dataclasses and the docstrings below them.

A field whose value or type is a dataclass is a section: its fields are options, too, with the flat names of the flags.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shared.config.checks.field_checks import range_hint, ranges_of
from shared.text import flag_of

_Value = TypeVar("_Value")
POSITIONAL = "positional"
Positional = Annotated[_Value, POSITIONAL]
"""Type of a field that is given by its place, without a flag."""

PLACEHOLDERS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""Placeholder in --help for the value of an option, by type."""


@dataclass(frozen=True)
class Option:
    """One option of a task."""

    name: str
    path: tuple[str, ...]
    """Names of the sections that it lies in, from the outside."""
    title: str
    """Title of its section: the first line of the docstring; empty for the options of the task itself."""
    kind: type
    """bool, int, float, str or Path."""
    default: Any
    """`MISSING` if it is required."""
    may_be_unset: bool
    choices: tuple[str, ...]
    """Possible values; empty: not limited to a list."""
    range: str
    """Range of a number as --help shows it; empty: none."""
    many: bool
    """True if any number of values is taken."""
    positional: bool
    hidden: bool
    """True if --help leaves it out, because it has no effect."""
    owner: type
    """Class that declares it, whose source holds its text."""

    @property
    def flag(self) -> str:
        """Its flag, as `--help` spells it."""
        return flag_of(self.name)

    @property
    def placeholder(self) -> str:
        """Placeholder for its value; empty for a switch."""
        if self.kind is bool:
            return ""
        return f"{{{','.join(self.choices)}}}" if self.choices else PLACEHOLDERS[self.kind]

    @property
    def text(self) -> str:
        """The docstring of its field as one line."""
        return texts_of(self.owner).get(self.name, "")


def options_of(
    start: Any, choices: Mapping[str, Callable[[], Sequence[str]]] | None = None, hidden: Container[str] = ()
) -> list[Option]:
    """Options of a dataclass, or of an instance of one, whose values are the defaults.

    Those that the class itself declares come first, then those of its bases, then those of its sections.

    Args:
        choices: function that lists the values of an option, by name, where the type does not say them.
        hidden: names of options without effect.
    """
    own = inspect.get_annotations(start if isinstance(start, type) else type(start))

    def place(option: Option) -> int:
        return 2 if option.path else option.name not in own

    return sorted(_options_in(start, (), "", choices or {}, hidden), key=place)


def _options_in(
    start: Any,
    path: tuple[str, ...],
    title: str,
    choices: Mapping[str, Callable[[], Sequence[str]]],
    hidden: Container[str],
) -> Iterator[Option]:
    kind = start if isinstance(start, type) else type(start)
    hints, ranges = get_type_hints(kind, include_extras=True), ranges_of(kind)
    for item in fields(kind):
        default = _default_of(item) if isinstance(start, type) else getattr(start, item.name)
        if is_dataclass(default) and not isinstance(default, type):
            headline = (inspect.getdoc(type(default)) or "").split("\n")[0]
            yield from _options_in(default, (*path, item.name), headline, choices, hidden)
            continue
        hint = hints[item.name]
        inner, words, may_be_unset, many = _taken_apart(hint)
        yield Option(
            name=item.name,
            path=path,
            title=title,
            kind=inner,
            default=default,
            may_be_unset=may_be_unset,
            choices=words or tuple(choices[item.name]() if item.name in choices else ()),
            range=range_hint(ranges[item.name]) if item.name in ranges else "",
            many=many,
            positional=POSITIONAL in getattr(hint, "__metadata__", ()),
            hidden=item.name in hidden,
            owner=kind,
        )


def _default_of(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _taken_apart(hint: Any) -> tuple[type, tuple[str, ...], bool, bool]:
    """Type of a value, its choices, True if it may be None, True if it is a tuple of values."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        members = [each for each in get_args(hint) if each is not NoneType]
        assert len(members) == 1, f"{hint} has several types"
        kind, words, _, many = _taken_apart(members[0])
        return kind, words, True, many
    if get_origin(hint) is Literal:
        return str, get_args(hint), False, False
    if get_origin(hint) is tuple:
        return get_args(hint)[0], (), False, True
    assert hint is bool or hint in PLACEHOLDERS, f"{hint} is no type of an option"
    return hint, (), False, False


@cache
def texts_of(kind: type) -> Mapping[str, str]:
    """Docstrings below the fields of a dataclass and its bases, each as one line; empty where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for node in ast.walk(_tree_of(base.__module__)):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                found |= _texts_in(node)
    return found


def _texts_in(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, below in zip(node.body, node.body[1:], strict=False):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


@cache
def _tree_of(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # the module has no source
        return ast.Module([], [])
