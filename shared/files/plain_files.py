"""Plain files, also from untrusted sources.

A run directory may come from elsewhere. So nothing in it is opened through a symbolic link, no pipe is waited for, and
sizes are compared before anything is read.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from shared.errors import ConfigError, FileError, RingsideError

_UNOPENABLE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""Errors when a symbolic link, a socket or a device without a driver is opened."""


def exists(path: str | Path) -> bool:
    """True if the path exists, false also for a name that nothing can have.

    Raises:
        ConfigError: that cannot be known: this user may not look, say, or the disk does not answer.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    return True


def open_to_write(path: Path, flags: int) -> int:
    """Open a regular file for writing in place; create it, for its owner only, if missing.

    Args:
        flags: as of `os.open`, those for reading, writing and appending.

    Raises:
        OSError: the system refuses, or something else stands in its place.
    """
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileExistsError(errno.EEXIST, "not a plain file", str(path))


def open_to_read(
    path: Path, limit: int | None = None, *, follow: bool = False, error: type[RingsideError] = FileError
) -> BufferedReader:
    """Open a plain file.

    Args:
        limit: bytes that it may have at most.
        follow: True if `path` may be a symbolic link, as one that a user names; inside a run directory none may.
        error: what is raised for a file of another kind, or a larger one.

    Raises:
        RingsideError: as `error` says. OSError: the system refuses.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError as refused:
        if refused.errno in _UNOPENABLE:
            raise error(f"{path.name} is not a plain file.") from refused
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        refusal = f"{path.name} is not a plain file."
    elif limit is not None and status.st_size > limit:
        refusal = f"{path.name} has {status.st_size:,} bytes; it may have at most {limit:,}."
    else:
        return open(descriptor, "rb")
    os.close(descriptor)
    raise error(refusal)


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """The content of a plain file of at most `limit` bytes. Else as `open_to_read`."""
    with open_to_read(path, limit, follow=follow) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # a file of size 0, as in /proc, may have no end
