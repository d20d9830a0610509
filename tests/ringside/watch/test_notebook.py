"""The live display of a notebook, over a stand-in of IPython."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ringside.records.role_status import RoleStatus
from ringside.run import training
from ringside.watch import notebook
from ringside.watch.line import line
from ringside.watch.notebook import NotebookDisplay, in_notebook
from ringside.watch.status import Status

STATUS = Status("pong", "nature", "concurrent", Path("runs/<pong>"), 400, 10, 8.0, steps=40)


class Handle:
    """Output of a cell, with all that was shown in it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, page: str) -> None:
        self.shown.append(page)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Handle:
    handle = Handle()

    def display(page: str, *, display_id: bool) -> Handle:
        assert display_id
        handle.update(page)
        return handle

    top, shown = ModuleType("IPython"), ModuleType("IPython.display")
    vars(top)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(shown).update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", top)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return handle


def test_a_cell_shows_notes_above_the_newest_status(cell: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(notebook.time, "monotonic", lambda: clock.now)
    display = NotebookDisplay()
    display.show(STATUS)
    assert "pong" in cell.shown[-1]
    assert "runs/&lt;pong&gt;" in cell.shown[-1]
    drawn = len(cell.shown)
    display.show(STATUS)  # at once: not drawn again
    assert len(cell.shown) == drawn
    display.note("a < b")
    assert cell.shown[-1].index("a &lt; b") < cell.shown[-1].index("Ctrl-C")
    clock.now += notebook.REDRAW_SECONDS
    display.show(STATUS)
    assert len(cell.shown) == drawn + 2


ENDED = (
    "Stopped after 40 steps and 3 updates in 0:00:02, mean return 1.50 (mean of the last 2). Everything is in runs/é.\n"
)
SPOKEN = f"Learning begins\n{line(STATUS)}\n{ENDED}"


def simulate_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `train` begin no run: it gets one note and one status."""

    def run(ready: object, on_status: Any, note: Any, *more: object) -> dict[str, Any]:
        note("Learning begins")
        on_status(STATUS)
        figures = {"steps": 40, "updates": 3, "seconds": 2.1, "episodes": 2, "mean_return_100": 1.5}
        return figures | {"finished": False}

    monkeypatch.setattr(training, "run", run)
    monkeypatch.setattr(training, "plan", lambda config: SimpleNamespace(config=config.with_settings(run_dir="runs/é")))


def contrast(color: str, page: str) -> float:
    """Contrast of two colors #rrggbb, as WCAG 2 defines it."""

    def luminance(hexadecimal: str) -> float:
        parts = [int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(color), luminance(page)))
    return (lighter + 0.05) / (darker + 0.05)


def test_colors_are_readable_on_light_and_dark_pages(cell: Handle) -> None:
    roles = tuple(RoleStatus(f"actor {i}", "starting", 0.5, restarts=2) for i in range(2))
    NotebookDisplay().show(replace(STATUS, preset="quick", warnings=("The network may be dead.",), roles=roles))
    colors = set(re.findall(r"[^-]color: (#[0-9a-f]{6})", cell.shown[-1]))
    assert len(colors) >= 3, "there are blue, yellow and dim words"
    for color in colors:
        assert min(contrast(color, page) for page in ("#ffffff", "#1e1e1e", "#111111")) > 3.5, color


def test_only_a_kernel_is_a_notebook(cell: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_notebook()
    for shell in (None, SimpleNamespace()):  # no IPython runs, or it is that of a terminal
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda shell=shell: shell)
        assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_training_in_a_cell_shows_the_run(
    cell: Handle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate_run(monkeypatch)
    seen: list[Status] = []
    training.train(game="pong", on_status=seen.append)
    assert seen == [STATUS]
    assert "Learning begins" in cell.shown[-1]
    assert "40 of 400 steps" in cell.shown[-1]
    assert capsys.readouterr().out == ENDED
    shown = len(cell.shown)
    training.train(game="pong", plain=True)
    assert len(cell.shown) == shown
    assert capsys.readouterr().out == SPOKEN
    training.train(game="pong", progress=False)
    assert (len(cell.shown), capsys.readouterr().out) == (shown, "")


@pytest.mark.parametrize("plain", [True, False])
def test_training_in_a_script_prints_the_lines_and_notes_of_the_command(
    plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate_run(monkeypatch)
    training.train(game="pong", plain=plain)
    assert capsys.readouterr().out == SPOKEN
    training.train(game="pong", plain=plain, progress=False)
    assert capsys.readouterr().out == ""
    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        for out in (None, stream):
            monkeypatch.setattr(sys, "stdout", out)
            training.train(game="pong", plain=plain)
    assert "Everything is in runs/\\xe9." in (tmp_path / "out").read_text()
