"""Where numba keeps the kernels that it has compiled."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from shared.errors import FatalError


def prepare(package: Path) -> None:
    """Name a folder for the compiled kernels of a package where numba's own choices cannot be written.

    numba keeps them beside the source, or in the user's cache folder, and refuses to import a cached kernel when it can
    write neither. It reads the name when it is imported itself, so each package with kernels says this first of all.
    The folder carries the user's number and must be theirs: compiled code is loaded from it.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    beside = package / "__pycache__"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if os.access(beside if beside.exists() else package, os.W_OK):
        return
    if os.access(next(folder for folder in (user, *user.parents) if folder.exists()), os.W_OK):
        return
    folder = Path(tempfile.gettempdir()) / f"ringside-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise FatalError(f"{folder} belongs to another user; set NUMBA_CACHE_DIR to a folder of your own.")
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
