"""Output files and directories named by a flag: checks, before the work that fills them, that they can be written."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shared.errors import ConfigError


def require_writable(flag: str, path: Path, *, replaces: bool = False, beside: Path | None = None) -> None:
    """Refuse, before the work, a file that cannot be written at its end.

    Args:
        flag: the option that names it.
        path: the file.
        replaces: it is written beside its name and renamed, which a pipe or a device would not survive.
        beside: the agent that is read, which the file must not replace.

    Raises:
        ConfigError: the file cannot be written, or is the agent.
    """
    above = os.path.dirname(os.path.abspath(path))  # nothing here raises for a name that is too long
    if not path.name:
        reason = "it names no file."
    elif os.path.isdir(path) or (replaces and os.path.exists(path) and not os.path.isfile(path)):
        reason = "it is not an ordinary file."
    elif not os.path.isdir(above):
        reason = "its directory does not exist."
    elif (refusal := _refusal(path)) is not None:
        reason = f"{refusal}."
    elif beside is not None and _same(path, beside):
        reason = "it is the agent itself."
    elif not os.access(path if os.path.exists(path) and not replaces else above, os.W_OK):
        reason = "this user may not write there."
    else:
        return
    raise ConfigError(f"{flag} {path} cannot be written: {reason}")


def make_result_directory(flag: str, path: Path) -> None:
    """Make the directory of a flag where there is none. Raises `ConfigError` where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{flag} {path} is a file: name a directory.") from error
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error.strerror}.") from error


def _same(path: Path, other: Path) -> bool:
    """True if both names lead to one file."""
    try:
        return os.path.samefile(path, other)
    except OSError:  # one does not exist
        return False


def _refusal(path: Path) -> str | None:
    """The system's reason against a file of this name; None: there is none. Its directory exists."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    return None


def write_result(flag: str, path: Path, result: object) -> None:
    """Write a result as JSON to the path of a flag. Raises `ConfigError` where that is not possible after all."""
    try:
        path.write_text(json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error.strerror}.") from error
