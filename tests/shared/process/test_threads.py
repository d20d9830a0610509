"""Threads of libraries: what processes of a run find in their environment, and what is left in ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shared.process.library_env import IGNORED_ENV, ONE_THREAD, pinned_thread_env

COUNT = "import os, numpy; print(len(os.listdir('/proc/self/task')), os.environ.get('OMP_PLACES'))"


def test_a_process_has_the_threads_that_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PLACES", "{0}")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    before = dict(os.environ)
    with pinned_thread_env():
        told = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == ["1", "None"]
    assert dict(os.environ) == before


def test_it_is_as_before_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ONE_THREAD, *IGNORED_ENV):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OSError, match="no room"), pinned_thread_env():
        raise OSError("no room")
    assert not {*ONE_THREAD, *IGNORED_ENV} & os.environ.keys()
