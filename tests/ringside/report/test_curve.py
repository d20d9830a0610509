"""Learning curves as pictures: what is drawn where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ringside.report.curve import MINUTES, STEPS, curve_in, draw, draw_published, main, picture, published_beside
from ringside.report.published import published_curves_of_game
from shared.root import ROOT
from tests.support.written_runs import write_run


def test_several_runs_have_their_means_and_evaluations(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns=(-21.0, -20.0, -10.0, 3.0), evaluations=(-20.0, 5.0), seconds=30.0)
    axis = Figure().subplots()
    draw(axis, curve_in(f"ours={run}"), "red", 1, alone=False)
    means, evaluations = axis.lines
    assert means.get_label() == "ours"
    assert list(means.get_xdata()) == [0.5, 1.0, 1.5, 2.0], "minutes"
    assert means.get_ydata()[-1] == pytest.approx((-21 - 20 - 10 + 3) / 4)
    assert list(zip(*evaluations.get_data(), strict=True)) == [(1.05, -20.0), (2.05, 5.0)], "when they were made"


def test_a_run_alone_has_its_episodes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", returns=(-21.0, -20.0))
    axis = Figure().subplots()
    draw(axis, curve_in(str(run)), "red", 0, alone=True)
    episodes, mean = axis.lines
    assert list(zip(*episodes.get_data(), strict=True)) == [(1.0, -21.0), (2.0, -20.0)], "thousands of steps"
    assert mean.get_label() == "mean of the last 2"


def test_the_command_writes_a_picture(tmp_path: Path) -> None:
    runs = [f"{name}={write_run(tmp_path / name)}" for name in ("one", "two")]
    words = [sys.executable, "-m", "ringside.report.curve", *runs, "--out", str(tmp_path / "out.png")]
    subprocess.run(words, cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("last_step", "points"), [(1_000, 1), (125_000, 1), (375_000, 2), (1e9, 50)])
def test_a_published_curve_reaches_as_far_as_the_runs_but_has_a_point(last_step: float, points: int) -> None:
    axis = Figure().subplots()
    dqn = published_curves_of_game("pong")[0]
    draw_published(axis, dqn, last_step)
    (line,) = axis.lines
    assert list(line.get_xdata()) == [125.0 + 250.0 * i for i in range(points)], "thousands of steps"
    assert list(line.get_ydata()) == dqn.returns[:points].tolist()
    assert line.get_linestyle() == "--"
    assert line.get_label() == "DQN (Dopamine), sticky 0.25, 5 runs"


@pytest.mark.parametrize("over", [[STEPS], [STEPS, MINUTES]])
def test_the_names_of_all_curves_fit_the_picture(tmp_path: Path, over: list[int]) -> None:
    curves = [curve_in(str(write_run(tmp_path / "run", game="breakout")))]
    figure = picture(curves, published_beside(curves), over)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    shown = legend.get_window_extent()
    assert figure.bbox.x0 <= shown.x0 < shown.x1 <= figure.bbox.x1


def test_published_curves_are_of_the_game_of_the_runs(tmp_path: Path) -> None:
    runs = [curve_in(str(write_run(tmp_path / game, game=game))) for game in ("pong", "breakout", "seaquest")]
    assert published_beside(runs[:1]) == published_curves_of_game("pong")
    with pytest.raises(ValueError, match="runs of one game; these are of pong, breakout"):
        published_beside(runs[:2])
    with pytest.raises(ValueError, match="no published curve of seaquest"):
        published_beside(runs[2:])


def test_the_command_draws_published_curves_or_says_that_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {game: str(write_run(tmp_path / game, game=game)) for game in ("pong", "seaquest")}
    words = ["curve", "--published", "--out", str(tmp_path / "out.png")]
    monkeypatch.setattr(sys, "argv", [*words, runs["seaquest"]])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, "no published curve of seaquest" in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "out.png").exists()
    monkeypatch.setattr(sys, "argv", [*words, runs["pong"]])
    main()
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
