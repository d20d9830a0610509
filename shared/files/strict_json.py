"""JSON from untrusted sources, which is read strictly: all of it goes through `json_object`."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from shared.errors import FileError
from shared.files.plain_files import read_bytes

MOST_JSON_BYTES = 1 << 20
MOST_JSON_DEPTH = 32
"""Objects and lists inside one another."""


def read_json(path: Path, limit: int = MOST_JSON_BYTES, *, follow: bool = False) -> dict[str, Any]:
    """The JSON object in a plain file of at most `limit` bytes.

    Raises:
        FileError: it holds none, is no plain file, or is larger. OSError: the system refuses.
    """
    found = json_object(read_bytes(path, limit, follow=follow))
    if found is None:
        raise FileError(f"{path.name} is truncated or damaged: it holds no JSON object.")
    return found


def read_object(path: Path, limit: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """The JSON object in a plain file of at most `limit` bytes; empty where there is none that is whole."""
    try:
        return read_json(path, limit)
    except (OSError, FileError):
        return {}


def json_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object that some bytes are; None: they are none.

    Strictly: in UTF-8, without NaN and infinity, no name twice in an object, whole numbers of 64 bits, other numbers
    within float64, no more than `MOST_JSON_DEPTH` deep, and every text can be written in UTF-8.
    """
    try:
        found = _DECODER.decode(content.decode())
        if not isinstance(found, dict) or _is_deep(content, found):
            return None
        if _SURROGATE.search(content):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found


def _is_deep(content: bytes, found: Any) -> bool:
    """True if `found`, parsed from `content`, has more than `MOST_JSON_DEPTH` objects and lists inside one another."""
    if content.count(b"{") + content.count(b"[") <= MOST_JSON_DEPTH:
        return False
    level = [found]
    for _ in range(MOST_JSON_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _whole_number(text: str) -> int:
    """An integer of JSON; the length comes first, because long ones take long."""
    if len(text) > 20 or not -(1 << 63) <= (value := int(text)) < 1 << 63:
        raise ValueError(f"{text:.40} has more than 64 bits")
    return value


def _real_number(text: str) -> float:
    """Another number of JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is too large")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which no name stands twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_doubles,
    parse_int=_whole_number,
    parse_float=_real_number,
    parse_constant=_no_constant,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half a character, as JSON spells it; two together may be one."""
