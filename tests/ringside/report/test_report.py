"""The report's page: whole in itself, nothing mixed, nothing executed, and the curves in it."""

from __future__ import annotations

import base64
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from ringside.report.comparison import compare
from ringside.report.figures import amount, duration, score, setting
from ringside.report.plots import (
    COLORS,
    Numbers,
    learning_curve,
    learning_points,
    metric_chart,
    metric_names,
    score_chart,
    seed_band,
    style,
)
from ringside.report.records import load
from ringside.tasks import report as task
from shared.errors import ConfigError
from shared.process.ownership import evaluation_video
from shared.text import headline
from tests.support.written_runs import write_run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two games, two seeds, one configuration. To draw one takes a second or two."""
    path = tmp_path_factory.mktemp("report")
    runs = [
        write_run(path / f"{game}-{seed}", game, seed, final=final + seed, best=final + 9)
        for game, final in (("pong", -10.0), ("breakout", 20.0))
        for seed in (1, 2)
    ]
    task.write_report(runs, path / "out")
    return path / "out"


class Tags(HTMLParser):
    """Every tag with its attributes, and what stands open."""

    VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(runs: list[Path], out: Path) -> str:
    page, _ = task.write_report(runs, out)
    return page.read_text()


def test_the_page_needs_nothing_else(out: Path) -> None:
    page = (out / "report.html").read_text()
    tags = Tags(page)
    assert tags.open == []
    for tag, attributes in tags.found:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/svg+xml;base64,"))
    assert "url(" not in page
    assert "<dt>loss</dt><dd>Mean loss of the updates.</dd>" in page
    assert sum(tag == "img" for tag, _ in tags.found) == 1 + 2 * 3
    assert all(attributes.get("alt") for tag, attributes in tags.found if tag == "img")


def test_a_run_without_an_episode_has_no_empty_axes(tmp_path: Path) -> None:
    env = "tests.support.pixel_game:factory"
    run = write_run(tmp_path / "run", env=env, episodes=False, evaluations=())
    page = page_of([run], tmp_path / "out")
    assert page.count("<img") == 1, "the metrics of learning alone"
    assert "No episode has ended, and there was no evaluation." in page
    assert "<title>Ringside on pixel_game</title>" in page
    assert "frames" not in "".join(re.findall(r'<div class="tile">.*?</div>', page))


def test_it_shows_the_videos_of_the_best_and_the_newest_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", evaluations=[-20.0, -10.0, -15.0, -16.0])
    (run / "videos").mkdir()
    for number in range(4):
        evaluation_video(run, number).write_bytes(b"film %d" % number)
    page = page_of([run], tmp_path / "out")
    shown = [attributes["src"] for tag, attributes in Tags(page).found if tag == "video"]
    told = [base64.b64decode(str(address).removeprefix("data:video/mp4;base64,")) for address in shown]
    assert told == [b"film 1", b"film 3"]
    assert "seed 1: the best evaluation, at step 2,000. Its mean return is −10.0." in page
    monkeypatch.setattr("ringside.report.films.MOST_BYTES", 3)
    assert "<video" not in page_of([run], tmp_path / "out")


def test_a_single_point_is_drawn_with_its_value(tmp_path: Path) -> None:
    comparison = compare([load(write_run(tmp_path / "run", returns=(3.25,), evaluations=()))], [])
    with style():
        curve, chart = learning_curve(comparison, "pong", "steps"), metric_chart(comparison, "pong", "loss")
    for figure, value in ((curve, "3.25"), (chart, "0.5")):
        (axes,) = figure.axes
        assert {line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1} == {"o"}
        assert value in [text.get_text() for text in axes.texts]


def test_an_evaluation_stands_where_it_was_made(tmp_path: Path) -> None:
    comparison = compare([load(write_run(tmp_path / "run", returns=(3.0, 4.0), evaluations=(2.0,), seconds=60.0))], [])
    with style():
        (axes,) = learning_curve(comparison, "pong", "hours").axes
    assert [line.get_xdata().tolist() for line in axes.lines if line.get_markerfacecolor() == "white"] == [[123 / 60]]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0", "0.5", "1"]),
        ([20_000.0, 20_002.0, 20_004.0], ["20k", "20.002k", "20.004k"]),
        ([-20.99, -20.98, -20.97], ["-20.99", "-20.98", "-20.97"]),
    ],
)
def test_ticks_that_differ_have_different_labels(values: list[float], labels: list[str]) -> None:
    assert Numbers().format_ticks(values) == labels


def test_the_names_of_configurations_fit_the_pictures(tmp_path: Path) -> None:
    changes = ({}, {"double": True, "batch_size": 64, "learning_rate": 0.00123, "replay_size": 123_456})
    runs = [
        load(write_run(tmp_path / f"{game}-{i}", game, **change))
        for i, change in enumerate(changes)
        for game in ("pong", "breakout")
    ]
    comparison = compare(runs)
    with style():
        for figure in (score_chart(comparison), learning_curve(comparison, "pong", "steps")):
            figure.draw_without_rendering()
            (legend,) = figure.legends
            shown = legend.get_window_extent()
            assert figure.bbox.x0 <= shown.x0 < shown.x1 <= figure.bbox.x1


def test_a_single_game_has_no_picture_of_all_games(tmp_path: Path) -> None:
    page = page_of([write_run(tmp_path / f"run-{seed}", seed=seed) for seed in (1, 2)], tmp_path / "out")
    assert "All games together" not in page
    assert "IQM" in page
    assert not (tmp_path / "out" / "scores.png").exists()


def test_the_head_says_preset_changes_and_date(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", learning_rate=0.5)
    os.utime(run / "metrics.jsonl", (0, 86_400 * 365.5))
    head = page_of([run], tmp_path / "out").split("</header>")[0]
    assert "<b>nature</b>, changed: --learning-rate 0.5</li>" in head
    assert "Recorded until 1971-01-01." in head


def test_settings_without_effect_are_left_out(tmp_path: Path) -> None:
    page = page_of([write_run(tmp_path / "run", method="ppo")], tmp_path / "out")
    assert "<span>clip_ratio</span>" in page
    for name in ("replay_size", "munchausen", "epsilon_steps"):
        assert f"<span>{name}</span>" not in page


def test_a_session_without_a_record_has_no_limit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    summary["limit"] = {"name": "starting", "sentence": "All processes have started.", "share_of_limit": None}
    (run / "summary.json").write_text(json.dumps(summary))
    page = page_of([run], tmp_path / "out")
    assert "starting" not in page
    assert "All processes" not in page


@pytest.mark.parametrize(
    ("game", "words"),
    [
        ("space_invaders", "space_invaders"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("tests.support.pixel_game:factory", "pixel_game"),
        ("my_package:make_maze", "make_maze"),
        ("my_package:Maze-v0", "Maze-v0"),
    ],
)
def test_an_env_has_a_readable_name(game: str, words: str) -> None:
    assert headline(game) == words


def test_pictures_and_figures_lie_beside_it(out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    curves = {f"curve-{game}-{axis}.png" for game in ("pong", "breakout") for axis in ("steps", "hours")}
    metrics = {f"metric-{game}-loss.png" for game in ("pong", "breakout")}
    assert names == {"report.html", "report.json", "scores.png"} | curves | metrics
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in names if name.endswith("png"))
    figures = json.loads((out / "report.json").read_text())
    assert figures["measure"] == "final evaluation"
    assert figures["configurations"][0]["scores"] == {"breakout": [21.0, 22.0], "pong": [-9.0, -8.0]}
    found = figures["configurations"][0]["aggregates"]["IQM"]
    assert found["low"] < found["value"] < found["high"]


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_published_scores_stand_beside_with_their_source(out: Path) -> None:
    text = text_of((out / "report.html").read_text())
    for part in (
        "401.2",
        "417.5",
        "734.0",
        "Extended Data Table 2",
        "Hessel et al. 2018",
        "arXiv:1806.06923",
        "2108.13264",
    ):
        assert part in text
    assert "21.5 0.688" in text  # our mean in breakout, and human-normalized


def test_nothing_without_sticky_actions_stands_beside_runs_with_them(tmp_path: Path) -> None:
    page = page_of([write_run(tmp_path / "run", "breakout", protocol="machado")], tmp_path / "out")
    text = text_of(page)
    assert "No published scores under the same chance of sticky actions" in text
    for part in ("401.2", "417.5", "734", "Hessel", "IQN"):
        assert part not in text
    assert "sticky actions 0.25" in text


def test_values_of_a_run_are_shown_as_text(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", device="<script>alert(1)</script>:&make")
    summary = json.loads((path / "summary.json").read_text())
    summary["limit"] = {"name": "<img src=x>", "sentence": "<b>bold</b>", "share_of_limit": "much"}
    summary["restarts"] = "<i>"
    summary["machine"] = {"cpu": "<u>", "gpus": "<s>", "libraries": 3}
    (path / "summary.json").write_text(json.dumps(summary))
    page = page_of([path], tmp_path / "out")
    tags = {
        tag
        for tag, attributes in Tags(page).found
        if attributes.get("src", "data:").startswith("data:") or tag != "img"
    }
    assert not tags & {"script", "u", "s"}
    assert "&lt;script&gt;" in page
    assert "<b>bold" not in page


def test_a_run_that_died_young_can_be_reported(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", returns=[-21.0], evaluations=[], ended=None)
    text = text_of(page_of([path], tmp_path / "out"))
    assert "Still running, or crashed" in text


def test_two_configurations_have_a_key_with_their_differences(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(size), batch_size=size) for size in (32, 64)]
    text = text_of(page_of(paths, tmp_path / "out"))
    assert "nature nature --batch-size 64 Protocol nature" in text


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", game="adventure")  # without reference scores, so with fewer pictures
    first, second = (page_of([run], tmp_path / name) for name in ("a", "b"))
    assert re.sub(r"Made [\d :-]+", "", first) == re.sub(r"Made [\d :-]+", "", second)


def test_without_matplotlib_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.report.writing.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"matplotlib, which is not installed: run make install\."):
        task.write_report([tmp_path], tmp_path / "out")


# --- curves


def test_a_curve_holds_what_is_known_in_order(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", returns=[1.0, 2.0, 3.0], seconds=3600.0)
    with open(path / "metrics.jsonl", "a") as file:
        for i, seconds in ((3, None), (4, 9_000.0), (5, 18_000.0)):
            line = {"kind": "round", "round": i, "steps": 1000 * (i + 1), "seconds": seconds, "mean_return_100": 4.0}
            file.write(json.dumps(line) + "\n")
    run = load(path)
    x, y = learning_points(run, "hours")
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0, 3.0, 5.0], [1.0, 1.5, 2.0, 4.0])
    assert len(learning_points(run, "steps")[0]) == 6


def test_a_band_reaches_as_far_as_all_seeds() -> None:
    short = np.array([0.0, 10.0]), np.array([0.0, 10.0])
    late = np.array([5.0, 10.0, 20.0]), np.array([0.0, 0.0, 100.0])
    found = seed_band([short, late])
    assert found is not None
    grid, mean, least, most = found
    assert (grid[0], grid[-1]) == (5.0, 10.0)
    np.testing.assert_allclose(most, grid)
    np.testing.assert_allclose(least, 0.0)
    np.testing.assert_allclose(mean, grid / 2)
    assert seed_band([short, (np.array([30.0, 40.0]), np.array([0.0, 0.0]))]) is None
    assert seed_band([short, (np.zeros(0), np.zeros(0))]) is None
    assert seed_band([]) is None


def test_colors_differ() -> None:
    assert len(set(COLORS)) == 7


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (score(-1234.56), "−1,234.6"),
        (score(12345.6), "12,346"),
        (score(None), "–"),
        (score(float("nan")), "–"),
        (amount(200_000_000), "200 million"),
        (amount(16_000), "16,000"),
        (duration(61.0), "61 s"),
        (duration(1_800), "30 min"),
        (duration(36_000), "10.0 h"),
        (setting(True), "on"),
        (setting(None), "–"),
        (setting(50_000), "50_000"),
        (setting(2.5e-4), "0.00025"),
    ],
)
def test_figures_as_people_read_them(found: str, expected: str) -> None:
    assert found == expected


def test_settings_of_matplotlib_where_a_report_is_started_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)  # which has another program run on what is drawn
    with style():
        assert not mpl.rcParams["text.usetex"]
        assert mpl.rcParams["axes.grid"]
    assert mpl.rcParams["text.usetex"]


def test_metrics_are_those_of_the_records_and_none_that_a_damaged_file_invents(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "round":
            del line["loss"]
            odd = dict.fromkeys([r"$\\frac$", "A", *(f"m{i}" for i in range(30))], 1.0)
            line |= {"entropy": 1.2, "kl": 0.01, "gradient_norm": 1.0} | odd
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare([load(run)])
    names = metric_names(found, "pong")
    assert names[:3] == ["entropy", "kl", "m0"]
    assert len(names) == 9
    with style():
        axes = [metric_chart(found, "pong", name).axes[0] for name in names[:2]]
    assert [each.get_title() for each in axes] == ["entropy, nats", "KL, nats"]
    assert axes[0].lines[0].get_ydata()[-1] == 1.2
    assert metric_names(found, "breakout") == []
