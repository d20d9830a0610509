"""Learning curves as pictures: what is drawn where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks.curve import curve_in, draw
from tests.runs import ROOT
from tests.written_runs import write_run


def test_several_runs_have_their_means_and_evaluations(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns=(-21.0, -20.0, -10.0, 3.0), evaluations=(-20.0, 5.0), seconds=30.0)
    axis = Figure().subplots()
    draw(axis, curve_in(f"ours={run}"), "red", 1, alone=False)
    means, evaluations = axis.lines
    assert means.get_label() == "ours"
    assert list(means.get_xdata()) == [0.5, 1.0, 1.5, 2.0], "minutes"
    assert means.get_ydata()[-1] == pytest.approx((-21 - 20 - 10 + 3) / 4)
    assert list(zip(*evaluations.get_data(), strict=True)) == [(1.0, -20.0), (2.0, 5.0)]


def test_a_run_alone_has_its_episodes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns=(-21.0, -20.0))
    axis = Figure().subplots()
    draw(axis, curve_in(str(run)), "red", 0, alone=True)
    episodes, _ = axis.lines
    assert list(zip(*episodes.get_data(), strict=True)) == [(1.0, -21.0), (2.0, -20.0)], "thousands of steps"


def test_the_command_writes_a_picture(tmp_path: Path) -> None:
    runs = [f"{name}={write_run(tmp_path / name)}" for name in ("one", "two")]
    words = [sys.executable, "-m", "benchmarks.curve", *runs, "--out", str(tmp_path / "out.png")]
    subprocess.run(words, cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
