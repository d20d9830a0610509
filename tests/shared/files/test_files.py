"""Files that are whole or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shared.files import atomic
from shared.files.atomic import write_atomic


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
