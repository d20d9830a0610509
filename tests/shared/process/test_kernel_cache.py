"""The folder of compiled kernels where numba's own ones cannot be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shared.errors import FatalError
from shared.process import library_env
from shared.process.library_env import choose_kernel_cache


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that nobody can write, for a user without a home of their own."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library_env.os, "access", lambda path, mode: False)
    monkeypatch.setattr(library_env.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def folder(package: Path) -> Path:
    """The folder that is chosen then."""
    return package / f"ringside-kernels-{os.getuid()}"


def test_the_folder_is_the_users_alone(package: Path, folder: Path) -> None:
    for _ in range(2):  # made, and found
        choose_kernel_cache(package)
        assert os.environ.pop("NUMBA_CACHE_DIR") == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_user_who_can_write_is_left_to_numba(package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_env.os, "access", lambda path, mode: path == package)
    choose_kernel_cache(package)
    assert "NUMBA_CACHE_DIR" not in os.environ
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["link", "dangling link", "file", "group", "all"])
def test_code_is_not_loaded_from_where_others_may_write(package: Path, folder: Path, kind: str) -> None:
    if "link" in kind:
        folder.symlink_to(package / "missing" if kind == "dangling link" else package)
    elif kind == "file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir()
        folder.chmod({"group": 0o770, "all": 0o703}[kind])
    with pytest.raises(FatalError, match=r"Others may write to .* set NUMBA_CACHE_DIR"):
        choose_kernel_cache(package)
    assert "NUMBA_CACHE_DIR" not in os.environ
