"""Files that are whole or absent whenever a process is killed.

A file is written under a temporary name, forced to the disk (fsync) and renamed; then the directory is forced, too. So
a name in a run directory never stands for half a file. The one exception is a loss of power where the caller delays
forcing. A process that dies leaves at most a temporary, which `remove_temporaries` removes.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

PRIVATE_UMASK = 0o077
"""Files of a run are for its owner only."""
_TEMPORARY = ".tmp"


def write_atomic(path: Path, content: bytes | Callable[[BinaryIO], None], *, forced: bool = True) -> None:
    """Replace `path` by new content in one step; afterwards, if `forced`, it survives a loss of power.

    Only one process may write a given path.

    Args:
        content: the bytes, or a function that writes them to the open file that it is given.
        forced: force them to the disk; without, a loss of power may leave a part of them under the name until
            `sync` has forced them, and the directory.

    Raises:
        OSError: the system refuses (a full disk, say). The old file is untouched then.
    """
    temporary = path.with_name(f".{secrets.token_hex(12)}{_TEMPORARY}")  # no other program can have put a link there
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
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
        status = leftover.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            leftover.unlink()


def make_directory(path: Path) -> None:
    """Make a directory where there is none, with those above it; one that a symbolic link leads to is none.

    Raises:
        OSError: the system refuses, or something else stands in its place.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
