"""Output files and directories named by a flag: checks, before the work that fills them, that they can be written."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shared.errors import ConfigError
from shared.text import refused


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
    is_there, refusal = os.path.exists(path), None
    try:
        os.stat(path)
    except OSError as error:
        refusal = None if isinstance(error, FileNotFoundError | NotADirectoryError) else error.strerror
    faults = {
        "it names no file.": not path.name,
        "it is not an ordinary file.": os.path.isdir(path) or (replaces and is_there and not os.path.isfile(path)),
        "its directory does not exist.": not os.path.isdir(above),
        f"{refusal}.": refusal is not None,
        "it is the agent itself.": is_there and beside is not None and os.path.exists(beside) and path.samefile(beside),
        "this user may not write there.": not os.access(path if is_there and not replaces else above, os.W_OK),
    }
    if reason := next((reason for reason, is_so in faults.items() if is_so), None):
        raise ConfigError(f"{flag} {path} cannot be written: {reason}")


def make_result_directory(flag: str, path: Path) -> None:
    """Make the directory of a flag where there is none. Raises `ConfigError` where that is not possible."""
    with refused(f"{flag} {path} cannot be written"):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ConfigError(f"{flag} {path} is a file: name a directory.") from error


def write_result(flag: str, path: Path, result: object) -> None:
    """Write a result as JSON to the path of a flag. Raises `ConfigError` where that is not possible after all."""
    with refused(f"{flag} {path} cannot be written"):
        path.write_text(json.dumps(result, indent=2) + "\n")
