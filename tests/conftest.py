"""Fixtures for the tests of every folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import launch as launch_py
from shared.process.library_env import choose_workspace
from shared.root import ROOT
from tests.support.made_once import made_once
from tests.support.runs import STARTED, finish, start

Launch = Callable[..., "subprocess.CompletedProcess[str]"]
Refused = Callable[..., str]


def pytest_configure() -> None:
    """Runs obey when they are told to ignore SIGINT, and a shell tells so to whatever it starts in the background.

    A GPU gives the same bits again only where this was said before its libraries were loaded (`learner.engine.device`).
    """
    choose_workspace()
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """A run whose test has failed ends with it."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of the run of a test, which does not exist yet."""
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Sums of PyTorch in one order, whatever a test before has set. A file of tests that compute has loaded it."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def five_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run of five rounds, three of which learn; to be read only."""

    def run(run_dir: Path) -> None:
        former = os.umask(0)  # what is made is private all the same
        try:
            process = start(run_dir, actors="1", total_steps="2_400")
        finally:
            os.umask(former)
        printed = finish(process)
        assert "2,400 steps" in printed
        assert f"Everything is in {run_dir}" in printed

    return made_once(tmp_path_factory, "five-rounds", run)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    """`launch("--game", "pong")`: the command in this process, in an empty directory: what it refuses, shows or reads.

    What leaves a mark in its process is `launched`.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        try:
            code = launch_py.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, captured.out, captured.err)

    return run


@pytest.fixture
def refused(launch: Launch) -> Refused:
    """The sentence with which the command refuses, checked to be one and all there is."""

    def run(*arguments: str) -> str:
        done = launch(*arguments)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert re.fullmatch(r"launch\.py: [^\n]+\n", done.stderr), done.stderr
        return done.stderr

    return run


@pytest.fixture
def launched(tmp_path: Path) -> Launch:
    """As `launch`, but as a user types it: in a process of its own, without a terminal."""

    def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(ROOT / "launch.py"), *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": timeout}
        return subprocess.run(words, cwd=tmp_path, check=False, **pipes)

    return run
