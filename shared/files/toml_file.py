"""TOML files that a user names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from shared.errors import ConfigError, FileError
from shared.files.plain_files import read_bytes

MOST_BYTES = 1 << 20
"""Largest file that is read."""


_MOST_DEPTH = 32
"""Tables and lists inside one another."""
_TOO_LONG = "it has a whole number of more than 64 bits"
_TOO_DEEP = f"it has more than {_MOST_DEPTH} tables and lists inside one another"


def read_toml(flag: str, path: Path) -> dict[str, Any]:
    """Tables of a file that the option `flag` names. Raises `ConfigError`, which names both."""
    try:
        tables = tomllib.loads(read_bytes(path, MOST_BYTES, follow=True).decode("utf-8-sig"))
        fault = _fault_in(tables)
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror}.") from error
    except FileError as error:
        raise ConfigError(f"{flag} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {path} is not TOML: {str(error).rstrip('.'):.200}.") from error
    except RecursionError:
        fault = _TOO_DEEP
    except ValueError:  # Python converts no number of thousands of digits
        fault = _TOO_LONG
    if fault is not None:
        raise ConfigError(f"{flag} {path} cannot be used: {fault}.")
    return tables


def _fault_in(tables: dict[str, Any]) -> str | None:
    """Half a sentence about values that no setting can have; None: there are none."""
    level: list[Any] = [tables]
    for _ in range(_MOST_DEPTH):
        inner = [value for each in level for value in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in inner):
            return _TOO_LONG
        level = [value for value in inner if isinstance(value, dict | list)]
    return _TOO_DEEP if level else None
