"""Directories that all workers of pytest read: the first that needs one makes it, the others wait."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory that `make(directory)` makes, in this process or in another worker of the session.

    `make` is called for a path that does not exist, in a folder of its own.
    """
    session = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent  # which holds a folder for each worker
    directory, whole = session / name / "run", session / f"{name}.whole"
    with open(session / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(directory.parent, ignore_errors=True)  # another worker may have failed
            directory.parent.mkdir()
            make(directory)
            whole.touch()
    return directory
