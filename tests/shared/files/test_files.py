"""Files that are whole or absent."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from shared.errors import ConfigError
from shared.files import atomic, lock, plain_files
from shared.files.atomic import write_atomic
from shared.files.lock import is_locked, locked
from shared.files.plain_files import exists


@pytest.mark.parametrize("layer", ["fsync", "rename", "write"])
def test_a_failing_write_leaves_the_old_file_and_no_temporary(
    layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if layer != "write":
        monkeypatch.setattr(atomic.os, layer, fail)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, fail if layer == "write" else b"new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_and_directory_are_forced_to_the_disk_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        atomic.os,
        "fsync",
        lambda fd: (calls.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"), fsync(fd)),
    )
    monkeypatch.setattr(atomic.os, "rename", lambda a, b: (calls.append("rename"), rename(a, b)))
    write_atomic(tmp_path / "file", lambda file: file.write(b"new") and None)
    assert calls == ["file", "rename", "directory"]


def test_processes_that_ask_about_a_lock_keep_nobody_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as `is_locked` does for a moment
        assert not is_locked(path)
        monkeypatch.setattr(lock, "PROBE_SECONDS", 30.0)
        threading.Timer(0.05, asking.close).start()
        with locked(path, "--out", "another"):
            monkeypatch.undo()
            assert is_locked(path)
            with pytest.raises(ConfigError, match="belongs to another"), locked(path, "--out", "another"):
                pass


def test_a_path_that_cannot_be_looked_at_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exists(tmp_path)
    assert not any(exists(tmp_path / name) for name in ("none", "none/below", "x" * 300, "null\0"))

    refusing = Mock(side_effect=PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    monkeypatch.setattr(plain_files, "os", SimpleNamespace(stat=refusing))
    with pytest.raises(ConfigError, match="mine cannot be read: Permission denied"):
        exists("mine")
