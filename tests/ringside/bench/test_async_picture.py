"""The picture of asynchronous gradients: its levels, lines and curves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ringside.bench.harness.tables import Report
from ringside.bench.ladder.async_picture import draw_returns, draw_speeds, main, speeds_in
from ringside.report.curve import curve_in
from ringside.report.plots import COLORS
from tests.support.written_runs import write_run


def _report() -> Report:
    report = Report("ladder", "title")
    speeds = {"ordered-16": 900.0, "ordered-2": 400.0, "impala": 1_500.0, "ordered-16, solved": 12.0}
    for name, speed in speeds.items():
        report.add(name, "minutes" if "solved" in name else "steps/s", [speed, speed + 10, speed + 50])
    return report


def test_schedules_have_lines_and_batches_have_levels() -> None:
    speeds = speeds_in(_report().to_json())
    assert speeds == {"ordered": [(2, 410, 400, 450), (16, 910, 900, 950)], "impala": [(0, 1_510, 1_500, 1_550)]}
    axis = Figure().subplots()
    draw_speeds(axis, speeds)
    line, level = axis.lines
    assert (line.get_label(), level.get_label()) == ("ordered", "impala, on batches")
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 16], [410, 910])
    assert list(level.get_ydata()) == [1_510, 1_510]
    assert (line.get_color(), level.get_color()) == (COLORS[1], COLORS[3])
    assert axis.get_ylim()[0] == 0


def test_a_run_has_the_color_of_its_form_and_others_have_their_own(tmp_path: Path) -> None:
    axis = Figure().subplots()
    curves = [curve_in(f"{name}={write_run(tmp_path / name, seconds=30.0)}") for name in ("quick", "ordered", "ppo")]
    draw_returns(axis, curves)
    means = axis.lines[::2]
    assert [line.get_label() for line in means] == ["quick", "ordered", "ppo"]
    assert [line.get_color() for line in means] == [COLORS[4], COLORS[1], COLORS[5]]
    assert list(means[0].get_xdata()) == [0.5, 1.0, 1.5, 2.0], "minutes"


def test_the_command_writes_one_picture_or_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out, report = write_run(tmp_path / "run"), tmp_path / "out.png", tmp_path / "report.json"
    monkeypatch.setattr(sys, "argv", ["async_picture", str(report), f"ordered={run}", "--out", str(out)])
    report.write_text(json.dumps({"rows": [{"name": "quick", "unit": "steps/s", "median": 1.0, "values": [1.0]}]}))
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, "no rung of bench ladder --async" in capsys.readouterr().err) == (2, True)
    assert not out.exists()
    _report().write(report)
    main()
    assert out.read_bytes().startswith(b"\x89PNG")
