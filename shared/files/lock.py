"""The lock of a directory: one process at a time. The kernel releases it when that process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.errors import ConfigError, FileError
from shared.files.plain_files import open_to_read, open_to_write, read_bytes
from shared.text import refused

_SIGNATURE_BYTES = 32
POLL_SECONDS = 0.2
"""Interval between two looks at a lock that another process holds."""
_LOCK = struct.Struct("hhqqi4x")
"""C's `struct flock`: type, whence, start, length and process of a lock."""
_GET_LOCK, _SET_LOCK = 36, 37
"""F_OFD_GETLK and F_OFD_SETLK, which some builds of Python lack."""
_WHOLE_FILE = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@contextmanager
def locked(path: Path, flag: str, owner: str) -> Iterator[None]:
    """Hold the lock file at `path`, which is made where there is none.

    Args:
        path: of the file, in a directory that is there.
        flag: the option that named the directory, for sentences.
        owner: what holds the lock otherwise, for sentences: "a run that is still going on".

    Raises:
        ConfigError: another process holds it, or it cannot be had.
    """
    with refused(f"{flag} {path.parent} cannot be written"):
        lock = open_to_write(path, os.O_RDWR)
    try:
        with refused(f"{flag} {path.parent} cannot be locked"):  # on a file system without locks
            try:
                fcntl.fcntl(lock, _SET_LOCK, _WHOLE_FILE)
                _sign(lock)
            except (BlockingIOError, PermissionError) as error:
                raise ConfigError(f"{flag} {path.parent} belongs to {owner}.") from error
        yield
    finally:
        os.close(lock)


def identity(path: Path) -> bytes | None:
    """Content of the lock file at `path`, another for each holder; None: there is none that can be read.

    A copy of a directory has that of the original. So it tells whose directory it is, unlike the file's inode.
    """
    with suppress(OSError, FileError):
        content = read_bytes(path, _SIGNATURE_BYTES)
        return content if len(content) == _SIGNATURE_BYTES else None
    return None


def _sign(lock: int) -> None:
    """Write a new identity into a lock; a file that holds something else, or has another name, stays as it is."""
    with suppress(OSError):  # a full disk
        status = os.fstat(lock)
        if status.st_nlink == 1 and status.st_size in (0, _SIGNATURE_BYTES):
            os.pwrite(lock, secrets.token_hex(_SIGNATURE_BYTES // 2).encode(), 0)


def is_locked(path: Path) -> bool:
    """True if a process holds the lock file at `path`; False also where none can be opened."""
    with suppress(OSError, FileError), open_to_read(path) as file:
        found: bytes = fcntl.fcntl(file, _GET_LOCK, _WHOLE_FILE)
        return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)
    return False


def wait_until_free(path: Path, seconds: float, is_stopped: Callable[[], bool]) -> bool:
    """Wait until no process holds the lock file at `path`; False if one still does when the wait ends.

    Args:
        path: of the file.
        seconds: longest wait.
        is_stopped: True once there is no use in waiting.
    """
    deadline = time.monotonic() + seconds
    while is_locked(path):
        if is_stopped() or time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
