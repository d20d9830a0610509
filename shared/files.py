"""Files that are whole or absent, whatever is killed and whenever.

A file is written beside its name, forced to the disk, renamed over its name, and the directory is forced too. So a
name in a run directory never stands for half a file, but after a loss of power where forcing was left for later. A
process that dies leaves at most a temporary, which `remove_temporaries` clears away.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

PRIVATE_UMASK = 0o077
"""What a run writes is for its owner only."""
MOST_JSON_BYTES = 1 << 20
_TEMPORARY = ".tmp"


def write_atomic(path: Path, content: bytes | Callable[[BinaryIO], None], *, forced: bool = True) -> None:
    """Replace `path` by new content in one step; afterwards, if `forced`, it survives a loss of power.

    Only one process may write a given path.

    Args:
        content: the bytes, or a function that writes them to the open file that it is given.
        forced: force them to the disk; without, a loss of power may leave a part of them under the name until
            `sync` has forced them, and the directory.

    Raises:
        OSError: as the system says it (a full disk, say). The old file is untouched then.
    """
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            if forced:
                os.fsync(file.fileno())
        os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # renamed it is there no more
    if forced:
        sync(path.parent)


def sync(path: Path) -> None:
    """Force the content of a file to the disk, or renames and removals in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(directory: Path) -> None:
    """Remove what a killed writer of `directory` left half-written."""
    for leftover in directory.glob(f".*{_TEMPORARY}"):
        leftover.unlink()


def json_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object that some bytes are; None: they are none. NaN and infinity are not JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    try:
        found = json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of at most `MOST_JSON_BYTES`; empty where there is none that is whole."""
    try:
        with open(path, "rb") as file:
            return json_object(file.read(MOST_JSON_BYTES)) or {}
    except OSError:
        return {}


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
