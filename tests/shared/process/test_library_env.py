"""The environment of libraries: their threads, and the folder of compiled kernels."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shared.errors import FatalError
from shared.process import library_env
from shared.process.library_env import IGNORED_ENV, ONE_THREAD, choose_kernel_cache, pinned_thread_env

COUNT = "import os, numpy; print(len(os.listdir('/proc/self/task')), os.environ.get('OMP_PLACES'))"


def test_a_process_has_the_threads_that_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PLACES", "{0}")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    before = dict(os.environ)
    with pinned_thread_env():
        told = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=60)
    assert (told.stdout.split(), dict(os.environ)) == (["1", "None"], before)


def test_it_is_as_before_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ONE_THREAD, *IGNORED_ENV):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OSError, match="no room"), pinned_thread_env():
        raise OSError("no room")
    assert not {*ONE_THREAD, *IGNORED_ENV} & os.environ.keys()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that nobody can write, for a user whose home is closed, so that pathlib's `exists` may raise."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library_env.os, "access", lambda path, mode: False)
    monkeypatch.setattr(library_env.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delattr(Path, "exists")
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
    assert not os.path.exists(folder)


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
