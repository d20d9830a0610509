"""Files that are whole or absent."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from shared.errors import ConfigError
from shared.files import atomic, plain_files
from shared.files.atomic import write_atomic
from shared.files.lock import identity, is_locked, locked
from shared.files.plain_files import exists
from shared.files.strict_json import read_toml
from shared.root import ROOT


@pytest.mark.parametrize("layer", ["fsync", "rename", "write"])
def test_a_failed_write_leaves_the_old_file_alone(layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, fail = tmp_path / "file", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    write_atomic(path, b"old")
    if layer != "write":
        monkeypatch.setattr(atomic.os, layer, fail)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, fail if layer == "write" else b"new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_and_directory_are_synced_around_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, rename = list[str](), os.rename

    def fsync(fd: int) -> None:
        calls.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    monkeypatch.setattr(atomic.os, "rename", lambda a, b: (calls.append("rename"), rename(a, b)))
    write_atomic(tmp_path / "file", lambda file: file.write(b"new") and None)
    assert calls == ["file", "rename", "directory"]


def test_a_lock_has_one_holder_and_shows_it_to_all(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path), "there is none"
    path.touch()
    assert not is_locked(path)
    with locked(path, "--out", "another"):
        ask = "import pathlib as p, sys; from shared.files.lock import is_locked; print(is_locked(p.Path(sys.argv[1])))"
        assert is_locked(path)
        assert subprocess.run([sys.executable, "-c", ask, path], cwd=ROOT, capture_output=True).stdout == b"True\n"
        with pytest.raises(ConfigError, match="belongs to another"), locked(path, "--out", "another"):
            pass
    assert not is_locked(path)


def test_a_path_that_cannot_be_looked_at_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exists(tmp_path)
    assert not any(exists(tmp_path / name) for name in ("none", "none/below", "x" * 300, "null\0"))
    refusing = Mock(side_effect=PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    monkeypatch.setattr(plain_files, "os", SimpleNamespace(stat=refusing))
    with pytest.raises(ConfigError, match="mine cannot be read: Permission denied"):
        exists("mine")


NO_SETTINGS = [
    ("a = " + "9" * 5_000, "more than 64 bits"),
    ("a = [[9223372036854775808]]", "more than 64 bits"),
    ("a = " + "[" * 5_000 + "]" * 5_000, "inside one another"),
    ("a = " + "[" * 32 + "]" * 32, "inside one another"),
    (".".join("a" * 5_000) + " = 1", "inside one another"),
    ("a = ", "is not TOML: Invalid value"),
    ("a = '\xff'", "is not TOML"),
]


@pytest.mark.parametrize(("text", "says"), NO_SETTINGS)
def test_a_toml_file_that_holds_no_settings_is_refused_with_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=rf"^--config {path} .*{says}.*\.$"):
        read_toml("--config", path)
    path.write_text("a = -9_223_372_036_854_775_808\nb.c = " + "[" * 30 + "]" * 30)
    assert read_toml("--config", path)["a"] == -(1 << 63)


def test_a_lock_is_signed_by_its_holder(tmp_path: Path) -> None:
    """A copy of a directory has the signature of the original; the next holder has another one."""
    path, seen = tmp_path / "lock", set()
    assert identity(path) is None
    for _ in range(3):
        with locked(path, "--out", "another"):
            seen.add(identity(path))
            shutil.copyfile(path, tmp_path / "copy")
            assert identity(tmp_path / "copy") == identity(path) is not None
    assert len(seen) == 3


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("content", [b"", b"x" * 32, b"x" * 5, b"x" * 40])
def test_a_lock_with_another_name_or_other_content_is_not_signed(tmp_path: Path, linked: bool, content: bytes) -> None:
    """It may be a file of the user, which an archive has linked."""
    path = tmp_path / "lock"
    path.write_bytes(content)
    if linked:
        os.link(path, tmp_path / "mine")
    with locked(path, "--out", "another"):
        assert (path.read_bytes() == content) == (linked or len(content) not in (0, 32))
