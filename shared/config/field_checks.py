"""Types, ranges and marks that stand at the fields of settings, and checks of single settings by msgspec."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from shared.errors import ConfigError
from shared.text import flag_of, shown

MOST = 1 << 62
"""Bound of every whole number: what is made of it must fit into 64 bits."""

_BOUNDS: dict[str, tuple[str, str, Callable[[float, float], bool]]] = {
    "ge": (">=", "at least", operator.ge),
    "gt": (">", "above", operator.gt),
    "le": ("<=", "at most", operator.le),
    "lt": ("<", "below", operator.lt),
}
"""Sign, words and comparison of the bounds that `msgspec.Meta` has."""


types_of = cache(get_type_hints)
"""Types of the fields of a section by name, without their ranges. To evaluate them takes 0.1 ms, and a configuration
asks for every one."""


@cache
def marks_of(section: Any, kind: Any) -> Mapping[str, Any]:
    """Instances of the class `kind` in the types of a section's fields, by name; a field without one is absent.

    They stand at a field's type, or at a member of a union, which may be marked itself.
    """
    hints = get_type_hints(section, include_extras=True)
    members = {name: (*get_args(hint), *get_args(getattr(hint, "__origin__", None))) for name, hint in hints.items()}
    parts = ((name, part) for name, hint in hints.items() for part in (hint, *members[name]))
    marks = ((name, mark) for name, part in parts for mark in getattr(part, "__metadata__", ()))
    return {name: mark for name, mark in marks if isinstance(mark, kind)}


def ranges_of(section: type) -> Mapping[str, msgspec.Meta]:
    """Ranges of the fields of a section by name; a field without one is absent."""
    return marks_of(section, msgspec.Meta)


def convert(section: type, name: str, value: Any) -> Any:
    """Return a value as the type of its field: a path of a text, a float of a whole number, and 1e6 as a whole number.

    Raises:
        ConfigError: it is of another type. Whether it is in range and finite is `check_range`'s.
    """
    kind = types_of(section)[name]
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            value = int(value) if isinstance(value, Integral) else float(value)  # of numpy, too
            if isinstance(value, float) and value.is_integer() and int in (kind, *get_args(kind)):
                value = int(value)
        return msgspec.convert(value, kind, dec_hook=_path)
    except (msgspec.ValidationError, OverflowError):
        raise ConfigError(f"{name} {value!r:.80} is not {_type_in_words(kind)}.") from None


def check_ranges(section: Any) -> None:
    """Raise `ConfigError` for the first number of a section that is out of its range, or not finite.

    msgspec compares "above 0" with the least denormal number, which is 0 in a process where torch flushes denormals.
    """
    ranges = ranges_of(type(section))
    for name, value in vars(section).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and abs(value) >= MOST:
            raise ConfigError(f"{flag_of(name)} {shown(value):.80} must be below {MOST:_}.")
        if not math.isfinite(value):
            raise ConfigError(f"{flag_of(name)} {value} must be a finite number.")
        if name in ranges and not all(compare(value, bound) for _, _, compare, bound in _bounds(ranges[name])):
            raise ConfigError(f"{flag_of(name)} {shown(value)} must {_range_in_words(ranges[name])}.")


def range_hint(meta: msgspec.Meta) -> str:
    """A range as --help shows it behind the type of a value: ">= 1", "0 to 1"."""
    if meta.ge is not None and meta.le is not None:
        return f"{_number(meta.ge)} to {_number(meta.le)}"
    return ", ".join(f"{sign} {_number(bound)}" for sign, _, _, bound in _bounds(meta))


def _range_in_words(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"lie between {_number(meta.ge)} and {_number(meta.le)}"
    return "be " + " and ".join(f"{words} {_number(bound)}" for _, words, _, bound in _bounds(meta))


def _bounds(meta: msgspec.Meta) -> list[tuple[str, str, Callable[[float, float], bool], float]]:
    """Bounds of a range, with their signs, words and comparisons."""
    bounds = ((about, getattr(meta, name)) for name, about in _BOUNDS.items())
    return [(*about, bound) for about, bound in bounds if bound is not None]


def _number(bound: float) -> str:
    return f"{bound:_}" if isinstance(bound, int) else f"{bound:g}"


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
