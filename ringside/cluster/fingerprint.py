"""Fingerprint of the software of a machine: our sources, Python, and the libraries that results depend on.

Nodes with another fingerprint than the launcher's are refused: they might compute other weights.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path

from shared.machine.facts import LIBRARIES
from shared.root import ROOT

_PACKAGES = ("actors", "learner", "shared", "ringside", "workers")
_SOURCES = "sources of Ringside"
_DIGITS = 12
"""Digits of a digest that a sentence shows."""


def fingerprint(root: Path = ROOT) -> dict[str, str]:
    """Version of each library, and a digest of our sources, by name. Libraries that are missing have no entry."""
    found = {"Python": platform.python_version(), _SOURCES: _digest(root)}
    for library in (*LIBRARIES, "zstandard"):
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def difference(node: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Sentence with the first difference between a node and this machine; None if there is none."""
    for name, own in ours.items():
        other = theirs.get(name)
        if other != own:
            shown = f"has {name} {other}" if other else f"lacks {name}"
            return f"Node {node} {shown}, this machine {own}: weights could differ. Install the same versions there."
    return None


def _digest(root: Path) -> str:
    """Beginning of the SHA-256 over names and contents of our source files."""
    total = hashlib.sha256()
    files = [root / "launch.py", *(path for package in _PACKAGES for path in (root / package).rglob("*.py"))]
    for path in sorted(files):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return total.hexdigest()[:_DIGITS]
