"""JSON and TOML from untrusted sources, read strictly: all of it goes through `json_object` and `read_toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import ConfigError, FileError
from shared.files.plain_files import read_bytes
from shared.text import refused

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
"""Objects and lists inside one another."""
_TOO_LONG = "it has a whole number of more than 64 bits"
_TOO_DEEP = f"it has more than {MOST_DEPTH} tables and lists inside one another"
_DECODER = msgspec.json.Decoder(dict[str, Any])


def read_json(path: Path, limit: int = MOST_BYTES, *, follow: bool = False) -> dict[str, Any]:
    """The JSON object in a plain file of at most `limit` bytes.

    Raises:
        FileError: it holds none, is no plain file, or is larger. OSError: the system refuses.
    """
    found = json_object(read_bytes(path, limit, follow=follow))
    if found is None:
        raise FileError(f"{path.name} is truncated or damaged: it holds no JSON object.")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a plain file; empty where there is none that is whole."""
    try:
        return read_json(path)
    except (OSError, FileError):
        return {}


def json_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object that some bytes are; None: they are none.

    Strictly: in UTF-8, without NaN and infinity, whole numbers of 64 bits, other numbers within float64, and no more
    than `MOST_DEPTH` deep.
    """
    try:
        found = _DECODER.decode(content)
    except (ValueError, RecursionError):
        return None
    return None if _fault_in(found) else found


def read_toml(flag: str, path: Path) -> dict[str, Any]:
    """Tables of a file that the option `flag` names. Raises `ConfigError`, which names both."""
    with refused(f"{flag} cannot be read:", FileError), refused(f"{flag} {path} cannot be read"):
        content = read_bytes(path, MOST_BYTES, follow=True)
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
        fault = _fault_in(tables)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {path} is not TOML: {str(error).rstrip('.'):.200}.") from error
    except RecursionError:
        fault = _TOO_DEEP
    except ValueError:  # Python converts no number of thousands of digits
        fault = _TOO_LONG
    if fault is not None:
        raise ConfigError(f"{flag} {path} cannot be used: {fault}.")
    return tables


def _fault_in(found: dict[str, Any]) -> str | None:
    """Half a sentence about values that nothing here can have; None: there are none."""
    level: list[Any] = [found]
    for _ in range(MOST_DEPTH):
        inner = [value for each in level for value in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in inner):
            return _TOO_LONG
        level = [value for value in inner if isinstance(value, dict | list)]
    return _TOO_DEEP if level else None
