"""What tests of every folder use."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.cublas import choose_workspace
from tests.runs import STARTED

ROOT = Path(__file__).resolve().parent.parent

Launch = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure() -> None:
    """Runs obey when they are told to ignore SIGINT, and a shell tells so to whatever it starts in the background.

    A GPU gives the same bits again only where this was said before its libraries were loaded (`learner.device`).
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
def launch(tmp_path: Path) -> Launch:
    """`launch("--game", "pong")`: the command as a user types it, in an empty directory, without a terminal."""

    def run(*arguments: str, timeout: float = 60, environment: dict[str, str] | None = None) -> object:
        return subprocess.run(
            [sys.executable, str(ROOT / "launch.py"), *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run  # type: ignore[return-value]
