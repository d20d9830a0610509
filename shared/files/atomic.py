"""Files that are whole or absent whenever a process is killed, and readers of files from untrusted sources.

A file is written under a temporary name, forced to the disk (fsync) and renamed; then the directory is forced, too. So
a name in a run directory never stands for half a file. The one exception is a loss of power where the caller delays
forcing. A process that dies leaves at most a temporary, which `remove_temporaries` removes.

A run directory may come from elsewhere. So nothing in it is opened through a symbolic link, no pipe is waited for,
sizes are compared before anything is read, and all JSON goes through `json_object`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from shared.errors import ConfigError, FileError

PRIVATE_UMASK = 0o077
"""Files of a run are for its owner only."""
MOST_JSON_BYTES = 1 << 20
MOST_JSON_DEPTH = 32
"""Objects and lists inside one another."""
_TEMPORARY = ".tmp"
_CHUNK = 1 << 20
_UNOPENABLE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""Errors when a symbolic link, a socket or a device without a driver is opened."""


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
    """A descriptor of a plain file that is written in place, made where there is none; for its owner only.

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


def open_to_read(path: Path, limit: int | None = None, *, follow: bool = False) -> BinaryIO:
    """Open a plain file.

    Args:
        limit: bytes that it may have at most.
        follow: whether `path` may be a symbolic link: one that a user names may, one inside a run directory may not.

    Raises:
        FileError: it is of another kind, or larger. OSError: the system refuses.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in _UNOPENABLE:
            raise FileError(f"{path.name} is not a plain file.") from error
        raise
    status = os.fstat(descriptor)
    refusal = None
    if not stat.S_ISREG(status.st_mode):
        refusal = f"{path.name} is not a plain file."
    elif limit is not None and status.st_size > limit:
        refusal = f"{path.name} has {status.st_size:,} bytes; it may have at most {limit:,}."
    if refusal is not None:
        os.close(descriptor)
        raise FileError(refusal)
    return open(descriptor, "rb")


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """The content of a plain file of at most `limit` bytes. Else as `open_to_read`."""
    with open_to_read(path, limit, follow=follow) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # a file of size 0, as in /proc, may have no end


def read_json(path: Path, limit: int = MOST_JSON_BYTES, *, follow: bool = False) -> dict[str, Any]:
    """The JSON object in a plain file of at most `limit` bytes.

    Raises:
        FileError: it holds none, is no plain file, or is larger. OSError: the system refuses.
    """
    found = json_object(read_bytes(path, limit, follow=follow))
    if found is None:
        raise FileError(f"{path.name} is truncated or damaged: it holds no JSON object.")
    return found


def read_object(path: Path, limit: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """The JSON object in a plain file of at most `limit` bytes; empty where there is none that is whole."""
    try:
        return read_json(path, limit)
    except (OSError, FileError):
        return {}


def json_object(content: bytes) -> dict[str, Any] | None:
    """The JSON object that some bytes are; None: they are none.

    Strictly: in UTF-8, without NaN and infinity, no name twice in an object, whole numbers of 64 bits, other numbers
    within float64, no more than `MOST_JSON_DEPTH` deep, and every text can be written in UTF-8.
    """
    try:
        found = _DECODER.decode(content.decode())
        if not isinstance(found, dict) or _is_deep(content, found):
            return None
        if _SURROGATE.search(content):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found


def _is_deep(content: bytes, found: Any) -> bool:
    """True if `found`, parsed from `content`, has more than `MOST_JSON_DEPTH` objects and lists inside one another."""
    if content.count(b"{") + content.count(b"[") <= MOST_JSON_DEPTH:
        return False
    level = [found]
    for _ in range(MOST_JSON_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _whole_number(text: str) -> int:
    """An integer of JSON; the length comes first, because long ones take long."""
    if len(text) > 20 or not -(1 << 63) <= (value := int(text)) < 1 << 63:
        raise ValueError(f"{text:.40} has more than 64 bits")
    return value


def _real_number(text: str) -> float:
    """Another number of JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is too large")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which no name stands twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_doubles,
    parse_int=_whole_number,
    parse_float=_real_number,
    parse_constant=_no_constant,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half a character, as JSON spells it; two together may be one."""


def file_sha256(file: BinaryIO, size: int) -> str:
    """SHA-256 (hex) of the next `size` bytes of a file."""
    digest = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()
