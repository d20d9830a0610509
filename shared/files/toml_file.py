"""TOML files that a user names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from shared.errors import ConfigError, FileError
from shared.files.plain_files import read_bytes

MOST_BYTES = 1 << 20
"""Largest file that is read."""


def read_toml(flag: str, path: Path) -> dict[str, Any]:
    """Tables of a file that the option `flag` names. Raises `ConfigError`, which names both."""
    try:
        return tomllib.loads(read_bytes(path, MOST_BYTES, follow=True).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{flag} {path} is not TOML: {str(error).rstrip('.'):.200}.") from error
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror}.") from error
    except FileError as error:
        raise ConfigError(f"{flag} cannot be read: {error}") from error
