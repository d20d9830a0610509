"""Fixtures for the tests of observers."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ringside.watch import display, observer, server
from ringside.watch.status import Status
from tests.support.watched import Pretended

Clock = SimpleNamespace
"""Wall-clock and processor time that are set by hand: `now`, `cpu`."""


def rendered(status: Status, width: int = 100, height: int = 50) -> str:
    """The live display of a status, as text."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(display.render(status, width, height))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of displays, observers and the page."""
    clock = Clock(now=1_000.0, cpu=5.0, monotonic=lambda: clock.now, process_time=lambda: clock.cpu)
    for module in (display, observer, server):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def run(tmp_path: Path) -> Pretended:
    """A run that plays as the test says, for observers to attach to."""
    return Pretended(tmp_path / "pong")
