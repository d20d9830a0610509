"""Types, ranges and marks that stand at the fields of settings, and checks of single settings by msgspec."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from shared.errors import ConfigError
from shared.text import flag_of, shown

Mark = TypeVar("Mark", bound=Enum)

MOST = 1 << 62
"""Bound of every whole number: what is made of it must fit into 64 bits."""


def types_of(section: type) -> Mapping[str, Any]:
    """Types of the fields of a section by name, without their ranges."""
    return _types_and_ranges(section)[0]


def ranges_of(section: type) -> Mapping[str, msgspec.Meta]:
    """Ranges of the fields of a section by name; a field without one is absent."""
    return _types_and_ranges(section)[1]


@cache
def marks_of(section: type, kind: type[Mark]) -> Mapping[str, Mark]:
    """Members of the enum `kind` in the types of a section's fields, by name; a field without one is absent."""
    hints = get_type_hints(section, include_extras=True)
    marks = {item.name: getattr(hints[item.name], "__metadata__", ()) for item in fields(section)}
    return {name: mark for name, found in marks.items() for mark in found if isinstance(mark, kind)}


@cache  # a configuration asks for every setting, and to evaluate annotations takes 0.1 ms
def _types_and_ranges(section: type) -> tuple[Mapping[str, Any], Mapping[str, msgspec.Meta]]:
    plain, annotated = get_type_hints(section), get_type_hints(section, include_extras=True)
    names = [item.name for item in fields(section)]
    found = {name: next(_metas(annotated[name]), None) for name in names}
    ranges = {name: meta for name, meta in found.items() if meta is not None}
    return {name: plain[name] for name in names}, ranges


def convert(section: type, name: str, value: Any) -> Any:
    """Return a value as the type of its field: a path of a text, a float of a whole number, and 1e6 as a whole number.

    Raises:
        ConfigError: it is of another type. Whether it is in range and finite is `check_range`'s.
    """
    kind = types_of(section)[name]
    if isinstance(value, float):
        value = float(value)  # of a subclass, as numpy has
        if value.is_integer() and int in (kind, *get_args(kind)):
            value = int(value)
    try:
        return msgspec.convert(value, kind, dec_hook=_path)
    except msgspec.ValidationError:
        raise ConfigError(f"{name} {value!r:.80} is not {_type_in_words(kind)}.") from None


def check_ranges(section: Any) -> None:
    """Raise `ConfigError` for the first number of a section that is out of its range, or not finite."""
    ranges = ranges_of(type(section))
    for name in types_of(type(section)):
        value = getattr(section, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and abs(value) >= MOST:
            raise ConfigError(f"{flag_of(name)} {shown(value):.80} must be below {MOST:_}.")
        if not math.isfinite(value):
            raise ConfigError(f"{flag_of(name)} {value} must be a finite number.")
        if name in ranges and not _within(value, ranges[name]):
            raise ConfigError(f"{flag_of(name)} {shown(value)} must {_range_in_words(ranges[name])}.")


def range_hint(meta: msgspec.Meta) -> str:
    """A range as --help shows it behind the type of a value: ">= 1", "0 to 1"."""
    low, high = meta.ge, meta.le
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    bounds = ((">=", low), (">", meta.gt), ("<=", high), ("<", meta.lt))
    return ", ".join(f"{sign} {_number(bound)}" for sign, bound in bounds if bound is not None)


def _within(value: float, meta: msgspec.Meta) -> bool:
    """True if a number is in a range.

    msgspec compares "above 0" with the least denormal number, which is 0 in a process where torch flushes denormals.
    """
    return (
        (meta.ge is None or value >= meta.ge)
        and (meta.gt is None or value > meta.gt)
        and (meta.le is None or value <= meta.le)
        and (meta.lt is None or value < meta.lt)
    )


def _range_in_words(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"lie between {_number(meta.ge)} and {_number(meta.le)}"
    if meta.ge == 0 and meta.lt is None:
        return "not be negative"
    bounds = (("at least", meta.ge), ("above", meta.gt), ("at most", meta.le), ("below", meta.lt))
    return "be " + " and ".join(f"{word} {_number(bound)}" for word, bound in bounds if bound is not None)


def _number(bound: float) -> str:
    return f"{bound:_}" if isinstance(bound, int) else f"{bound:g}"


def _metas(hint: Any) -> Iterator[msgspec.Meta]:
    """Ranges in a type hint, those of a union's members too."""
    yield from (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta))
    if get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from _metas(inner)


def _path(kind: type, value: Any) -> Any:
    """A path, from its text too; msgspec knows none."""
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise msgspec.ValidationError("not a path")


def _type_in_words(kind: Any) -> str:
    optional = NoneType in get_args(kind)
    inner = next(each for each in get_args(kind) if each is not NoneType) if optional else kind
    if get_origin(inner) is Literal:
        expected = f"one of {', '.join(get_args(inner))}"
    else:
        words = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text", Path: "a path"}
        expected = words[get_args(inner)[0] if get_origin(inner) is Annotated else inner]
    return expected + (" or None" if optional else "")
