"""Readers of files of /proc and /sys; a missing or forbidden file counts as empty."""

from __future__ import annotations

import re
from pathlib import Path

FILESYSTEM = Path("/")
"""Root of the tree; tests use another."""


def text(path: Path) -> str:
    """A file's text; empty where it is missing or forbidden, as control files are in many containers.

    The name of a process or of a mount point may be no text; its bytes come as surrogates.
    """
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def stat_fields(path: Path) -> list[str]:
    """Fields of the `stat` of a process or thread, from the third, the state, on; empty when it is gone.

    "id (name) state parent ...", where a name may hold anything.
    """
    return text(path).rpartition(")")[2].split()


def number(path: Path) -> int | None:
    """A file that holds one number; None for "max" or no such file."""
    content = text(path).strip()
    return int(content) if re.fullmatch(r"-?\d+", content) else None


def pairs(path: Path) -> dict[str, int]:
    """A file of lines "name number"."""
    lines = (line.split() for line in text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}
