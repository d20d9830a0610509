"""The report: what is read of a run, and its page: whole in itself, nothing mixed, nothing executed; curves."""

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes

from ringside.report import plots
from ringside.report.comparison import ATARI_100K, THRESHOLDS, compare, published, published_curves
from ringside.report.records import load, newest
from ringside.report.report_page import score, write_report
from shared.config.protocols import PROTOCOLS
from shared.errors import ConfigError
from shared.text import headline
from tests.support.written_runs import write_run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two games, three seeds, one configuration. To draw one takes a second or two."""
    path = tmp_path_factory.mktemp("report")
    runs = [
        write_run(path / f"{game}-{seed}", game, seed, final=final + seed, best=final + 9)
        for game, final in (("pong", -10.0), ("breakout", 20.0))
        for seed in (1, 2, 3)
    ]
    write_report(runs, path / "out")
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


def page_of(out: Path, *runs: Path) -> str:
    return write_report(runs, out)[0].read_text()


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def curve_of(run: Path, axis: plots.Axis = "steps") -> Axes:
    """The axes of the learning curve of a run."""
    comparison = compare([load(run)])
    with plots.style():
        return plots.learning_curve(comparison, comparison.games[0], axis).axes[0]


def test_the_page_needs_nothing_else(out: Path) -> None:
    page = (out / "report.html").read_text()
    tags = Tags(page)
    assert tags.open == []
    for tag, attributes in tags.found:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    assert "url(" not in page
    pictures = [attributes for tag, attributes in tags.found if tag == "img"]
    assert len(pictures) == 2 + 2 * 2
    assert all(attributes.get("alt") for attributes in pictures)


def test_pictures_and_figures_lie_beside_it(out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    curves = {f"curve-{game}-{axis}.png" for game in ("pong", "breakout") for axis in ("steps", "hours")}
    assert names == {"report.html", "report.json", "intervals.png", "profiles.png"} | curves
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in curves)
    figures = json.loads((out / "report.json").read_text())
    assert figures["measure"] == "final evaluation"
    assert figures["configurations"][0]["scores"] == {"breakout": [21.0, 22.0, 23.0], "pong": [-9.0, -8.0, -7.0]}
    found = figures["configurations"][0]["aggregates"]["IQM"]
    assert found["low"] < found["value"] < found["high"]


def test_published_scores_stand_beside_with_their_source(out: Path) -> None:
    text = text_of((out / "report.html").read_text())
    for part in ("401.2", "417.5", "734.0", "Extended Data Table 2", "Hessel et al. 2018", "1806.06923", "2108.13264"):
        assert part in text
    assert "22.0 0.705" in text  # our mean in breakout, and human-normalized


@pytest.fixture
def atari_100k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Makes a report of all games of Atari 100k, each with so many seeds, without curves."""
    monkeypatch.setitem(PROTOCOLS, ATARI_100K, PROTOCOLS["nature"])
    monkeypatch.setattr("ringside.report.report_page._curves", lambda *_: [])
    der = next(agent for agent in published()[0] if agent.name == "DER")

    def make(seeds: int) -> Path:
        runs = []
        for (game, mean), seed in product(der.scores.items(), range(1, seeds + 1)):
            judged = {"returns": [mean - 1, mean + 1], "episodes": 100}
            run = write_run(tmp_path / f"{game}-{seed}", game, seed, [1.0], (), final=mean + (seed - 2), judged=judged)
            config = (run / "config.json").read_text().replace('"nature"', f'"{ATARI_100K}"', 1)
            (run / "config.json").write_text(config)
            (run / "cell.json").write_text(json.dumps({"arguments": ["--seed", str(seed)], "cpu": "a processor"}))
            runs.append(run)
        return write_report(runs, tmp_path / "out")[0].parent

    return make


def test_a_table_of_atari_100k_with_one_run_a_game_has_no_interval(atari_100k: Callable[[int], Path]) -> None:
    out = atari_100k(1)
    text = text_of((out / "report.html").read_text())
    assert "one run a game" in text.split("Scores by game")[0]
    assert not re.search(r"\d to \d", text.split("Aggregates")[1].split("Scores by game")[0])
    for row in ("DER (published) – 0.161 0.285", "DER, Dopamine (published) 0.183 0.189 0.350"):
        assert f"{row} –" in text
    assert "DrQ(ε) (published) 0.280 0.313 0.465 –" in text
    assert ("1906.05243" in text, "Extended Data Table 2" in text) == (True, False)
    assert {path.name for path in out.iterdir()} == {"report.html", "report.json"}
    (arm,) = json.loads((out / "report.json").read_text())["configurations"]
    assert (arm["improvements"], {found["low"] for found in arm["aggregates"].values()}) == ({}, {None})
    cell = next(each for each in arm["runs"] if each["game"] == "pong")
    known = {"seed": 1, "arguments": ["--seed", "1"], "cpu": "a processor", "weights_sha256": "0123456789abcdef"}
    assert cell.items() >= (known | {"returns": [-20.3, -18.3]}).items()


def test_three_runs_a_game_have_intervals_profiles_and_improvements(atari_100k: Callable[[int], Path]) -> None:
    out = atari_100k(3)
    text = text_of((out / "report.html").read_text()).split("Scores by game")[0]
    assert re.search(r" 0\.\d{3} to 0\.\d{3} 0\.161 0\.\d{3} to 0\.\d{3} ", text)
    assert {"intervals.png", "profiles.png"} < {path.name for path in out.iterdir()}
    (arm,) = json.loads((out / "report.json").read_text())["configurations"]
    assert arm["improvements"].keys() == {"DER", "DrQ(ε)"}
    over_der = arm["improvements"]["DER"]
    assert over_der["low"] < over_der["value"] == 0.5 < over_der["high"], "one run is worse, one equal, one better"


def test_figures_show_what_was_computed(atari_100k: Callable[[int], Path]) -> None:
    directory = atari_100k(3).parent
    comparison = compare([load(path) for path in sorted(directory.glob("*-*"))])
    (arm,) = comparison.arms
    with plots.style():
        figure, profiles = plots.intervals(comparison), plots.performance_profiles(comparison)
    panels = {axes.get_title("left"): axes for axes in figure.axes}
    assert [*panels] == ["IQM", "Median", "Mean", "Optimality gap", "Probability of improvement"]
    labels = [label.get_text() for label in panels["Mean"].get_yticklabels()]
    assert labels == [arm.label, "DER", "DER, Dopamine", "DrQ(ε)"]
    spread = panels["Mean"].containers[0].lines[2][0].get_segments()[0][:, 0].tolist()
    found = comparison.aggregates(arm)["Mean"]
    assert spread == pytest.approx([found.low, found.high])
    (ours,) = profiles.axes[0].lines
    shares = [np.mean(np.concatenate(comparison.normalized(arm)) > threshold) for threshold in THRESHOLDS]
    assert ours.get_ydata().tolist() == pytest.approx(shares)


def test_an_interval_without_its_value_is_drawn(atari_100k: Callable[[int], Path], monkeypatch: Any) -> None:
    """As a percentile interval of the median may be."""
    comparison = compare([load(path) for path in atari_100k(1).parent.glob("*-*")])
    found = comparison.aggregates(comparison.arms[0]).items()
    beyond = {name: replace(each, low=each.value + 1, high=each.value + 2) for name, each in found}
    monkeypatch.setattr(type(comparison), "aggregates", lambda *arms: beyond)
    assert plots.intervals(comparison).axes


def test_nothing_without_sticky_actions_stands_beside_runs_with_them(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path / "out", write_run(tmp_path / "run", "breakout", protocol="machado")))
    said = ("No published scores under the same chance of sticky actions", "sticky actions 0.25")
    for part in (*said, "breakout: IQN (Dopamine), sticky 0.25, 5 runs google/dopamine at commit"):
        assert part in text
    assert not re.search("401.2|417.5|734|Hessel", text)


def test_a_single_game_has_aggregates_and_an_env_has_neither_frames_nor_empty_axes(tmp_path: Path) -> None:
    pong = page_of(tmp_path / "a", *(write_run(tmp_path / f"run-{seed}", seed=seed) for seed in (1, 2)))
    assert "<th>IQM</th>" in pong
    env = "tests.support.pixel_game:factory"
    own = page_of(tmp_path / "b", write_run(tmp_path / "own", env=env, episodes=False, evaluations=()))
    assert not re.search("<img|IQM", own)
    for part in ("No episode has ended, and there was no evaluation.", "<title>Ringside on pixel_game</title>"):
        assert part in own
    assert "frames" not in text_of(own.split("<h2>Settings")[0]).replace("frames_", "")


def test_the_page_says_preset_changes_date_speed_and_settings_with_an_effect(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", learning_rate=0.5)
    os.utime(run / "metrics.jsonl", (0, 86_400 * 365.45))  # this day from UTC-10 to UTC+13
    page = page_of(tmp_path / "out", run)
    assert "<b>nature</b>, changed: --learning-rate 0.5</li>" in page
    for words in ("Last records: 1971-01-01.", "Machine: a processor, 2 cores; no GPU; torch 2."):
        assert words in page
    cells = dict(re.findall(r'<td data-column="([^"]*)">(.*?)</td>', page.split("<h2>Runs")[1]))
    assert (cells["steps"], cells["hours"], cells["steps/s"], cells["limit"]) == ("4k", "0.01", "100", "learner")
    assert cells["training"] == "−19.5<small>mean of the last 4</small>"
    assert cells["exact"] == "yes<small>0123456789ab</small>"
    assert "<div>learning_rate: <b>0.5</b>" in page
    assert "<div>v_max:" not in page, "it has no effect with dqn"
    pages = (re.sub(r"Report made [\d: -]+", "", each) for each in (page, page_of(tmp_path / "again", run)))
    assert len({*pages}) == 1, "the same run gives the same page"


def test_two_configurations_have_a_key_with_their_differences(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(size), batch_size=size) for size in (32, 64)]
    page = page_of(tmp_path / "out", *paths)
    assert "nature nature --batch-size 64 Protocol nature" in text_of(page)
    assert "batch_size:" not in page, "not all runs share it"


def test_values_of_a_run_are_shown_as_text(tmp_path: Path) -> None:
    path = write_run(
        tmp_path / "run", final=1.0, judged={"precision": ["<s>"]}, device="<script>alert(1)</script>:&make"
    )
    config = path / "config.json"
    config.write_text(config.read_text().replace('"dqn"', r'"$\\x$"'))  # which is no command of mathtext
    summary = json.loads((path / "summary.json").read_text())
    summary["limit"] = {"name": "<q>", "steps_per_second": "much"}
    summary["machine"] = {"cpu": "<u>", "gpus": "<s>", "libraries": 3}
    (path / "summary.json").write_text(json.dumps(summary))
    page = page_of(tmp_path / "out", path)
    assert not {tag for tag, _ in Tags(page).found} & {"script", "q", "u", "s"}
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("name", ["starting", None])
def test_a_run_that_died_young_or_has_no_limit_can_be_reported(tmp_path: Path, name: str | None) -> None:
    path = write_run(tmp_path / "run", returns=[-21.0], evaluations=[], ended=None if name is None else True)
    if name is not None:  # a session without a record
        summary = json.loads((path / "summary.json").read_text())
        (path / "summary.json").write_text(json.dumps(summary | {"limit": {"name": name}}))
    page = page_of(tmp_path / "out", path)
    assert ("Still running, or crashed" in page) == (name is None)
    assert '<td data-column="limit">–</td>' in page


def test_an_env_has_a_readable_name() -> None:
    names = {"ALE/Pong-v5": "ALE/Pong-v5", "tests.support.pixel_game:factory": "pixel_game"}
    names |= {"space_invaders": "space_invaders", "my_package:make_maze": "make_maze", "my_package:Maze-v0": "Maze-v0"}
    names |= {"my.catch:factory@size=5": "catch@size=5"}
    assert {game: headline(game) for game in names} == names


# --- curves


def test_a_single_point_is_drawn_with_its_value_and_an_evaluation_where_it_was_made(tmp_path: Path) -> None:
    axes = curve_of(write_run(tmp_path / "one", returns=(3.25,), evaluations=()))
    assert {line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1} == {"o"}
    assert "3.25" in [text.get_text() for text in axes.texts]
    axes = curve_of(write_run(tmp_path / "two", returns=(3.0, 4.0), evaluations=(2.0,), seconds=60.0), "hours")
    assert [line.get_xdata().tolist() for line in axes.lines if line.get_markerfacecolor() == "white"] == [[123 / 3600]]


@pytest.mark.parametrize(("last_step", "points"), [(1_000, 1), (125_000, 1), (375_000, 2), (10**9, 50)])
def test_a_published_curve_ends_with_the_runs_but_has_a_point(tmp_path: Path, last_step: int, points: int) -> None:
    run = write_run(tmp_path / "run", returns=(1.0,), evaluations=())
    lines = (run / "metrics.jsonl").read_text().replace('"steps": 1000', f'"steps": {last_step}')
    (run / "metrics.jsonl").write_text(lines)
    dqn = published_curves()[0][0]
    with plots.style():
        axes = plots.learning_curve(compare([load(run)]), "pong", "steps", [dqn]).axes[0]
    (line,) = (line for line in axes.lines if line.get_label() == "DQN (Dopamine), sticky 0.25, 5 runs")
    assert line.get_xdata().tolist() == [125_000.0 + 250_000 * i for i in range(points)]
    assert (line.get_ydata().tolist(), line.get_linestyle()) == (dqn.returns[:points].tolist(), "--")


@pytest.mark.parametrize("published", [(), published_curves()[0][:4]])
def test_the_names_of_all_curves_fit_the_picture(tmp_path: Path, published: Any) -> None:
    changes = ({}, {"double": True, "batch_size": 64, "learning_rate": 0.00123, "replay_size": 123_456})
    runs = [load(write_run(tmp_path / str(i), **change)) for i, change in enumerate(changes)]
    with plots.style():
        figure = plots.learning_curve(compare(runs), "pong", "steps", published)
        figure.draw_without_rendering()
    shown = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= shown.x0 < shown.x1 <= figure.bbox.x1


def test_a_curve_holds_what_is_known_in_order(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", returns=[1.0, 2.0, 3.0], seconds=3600.0)
    with open(path / "metrics.jsonl", "a") as file:
        for i, seconds in ((3, None), (4, 9_000.0), (5, 18_000.0)):
            line = {"kind": "round", "round": i, "steps": 1000 * (i + 1), "seconds": seconds, "mean_return_100": 4.0}
            file.write(json.dumps(line) + "\n")
    run = load(path)
    x, y = plots.learning_points(run, "hours")
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0, 3.0, 5.0], [1.0, 1.5, 2.0, 4.0])
    assert len(plots.learning_points(run, "steps")[0]) == 6
    assert curve_of(path, "hours").get_xlabel() == "hours of wall-clock time"


def test_a_band_reaches_as_far_as_all_seeds(tmp_path: Path) -> None:
    seeds = [load(write_run(tmp_path / str(seed), seed=seed, evaluations=())) for seed in (1, 2)]
    with plots.style():
        alone, both = (plots.learning_curve(compare(runs), "pong", "steps").axes[0] for runs in (seeds[:1], seeds))
    assert (len(alone.collections), len(both.collections)) == (0, 1)
    assert [line.get_linewidth() for line in both.lines[:3]] == [1.6, 0.6, 0.6], "the mean, and each seed"
    short = np.array([0.0, 10.0]), np.array([0.0, 10.0])
    late = np.array([5.0, 10.0, 20.0]), np.array([0.0, 0.0, 100.0])
    found = plots.seed_band([short, late])
    grid, *spread = found
    assert (grid[0], grid[-1]) == (5.0, 10.0)
    np.testing.assert_allclose(spread, [grid / 2, 0 * grid, grid])  # mean, least and most
    assert plots.seed_band([short, (np.array([30.0, 40.0]), np.array([0.0, 0.0]))]) is None
    assert plots.seed_band([short, (np.zeros(0), np.zeros(0))]) is None


def test_scores_are_as_people_read_them() -> None:
    assert (score(-1234.56), score(12345.6)) == ("−1,234.6", "12,346")
    assert {score(value) for value in (None, float("nan"), True, "3")} == {"–"}


def test_settings_of_matplotlib_where_a_report_is_started_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)  # which has another program run on what is drawn
    with plots.style():
        assert (mpl.rcParams["text.usetex"], mpl.rcParams["axes.grid"]) == (False, True)
    assert mpl.rcParams["text.usetex"]


def test_everything_that_a_run_wrote_is_there(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "run", seed=7, final=-19.0))
    assert (run.game, run.protocol, run.seed, run.steps, run.state) == ("pong", "nature", 7, 4_000, "finished")
    assert run.rounds["steps"].tolist() == [1_000, 2_000, 3_000, 4_000]
    assert run.rounds["mean_return_100"].tolist() == [-21.0, -20.5, -20.0, -19.5]
    assert run.rounds["loss"].tolist() == [0.5] * 4
    assert run.episodes["return"].tolist() == [-21.0, -20.0, -19.0, -18.0]
    assert run.evaluations["mean_return"].tolist() == [-20.0, -18.0]
    assert {kind: found["mean"] for kind, found in run.by_protocol.items()} == {"final": -19.0}
    assert run.settings["batch_size"] == 32


def test_a_run_that_goes_on_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ended=None)
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(b'{"kind": "episode", "round": 4, "steps": 4010, "return": 9.0, "length": 3}\n{"kind": "rou')
    run = load(path)
    assert (run.state, run.steps, len(run.episodes["return"])) == ("no end", 4_000, 4)


def test_a_value_that_is_no_number_is_none(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", returns=[1.0])
    line = {"kind": "round", "round": 1, "steps": 2_000, "loss": None, "epsilon": "much", "epsiloff": True, "new": 3}
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n" + '{"kind": "round", "round": 2, "steps": 3000, "loss": NaN}\n')
    run = load(path)
    assert np.isnan(run.rounds["loss"][1:]).all()
    assert (newest(run.rounds["loss"]), newest(run.rounds["epsilon"])) == (0.5, 0.1)
    assert ("epsiloff" in run.rounds, run.rounds["new"].tolist()[1]) == (False, 3)
    assert math.isnan(newest(np.full(3, np.nan)))


DAMAGE = [
    ("config.json", b"{", "config.json is truncated or damaged"),
    ("config.json", b"[1]", "no JSON object"),
    ("config.json", b'{"play": 3}', "a section of it is not an object"),
    ("config.json", b'{"play": {"game": "pong"}, "run": {"seed": 1}}', "not written by this version"),
    ("config.json", b'{"play": {"game": "pong", "protocol": "nature"}, "run": {"seed": true}}', "this version"),
    ("config.json", b" " * 9_000_000, "has 9,000,000 bytes; it may have at most"),
    ("summary.json", b"[" * 100_000, "summary.json is truncated or damaged"),
    ("summary.json", b'"text"', "no JSON object"),
    ("metrics.jsonl", b"", "has no complete round yet"),
    ("metrics.jsonl", b'nothing\n{"kind": "round", "round": 0, "steps": 1}\n', "line 1 is not a record"),
    ("evaluation-final.json", b"{}", "mean is None. Remove it"),
    ("evaluation-final.json", b'{"mean": 1, "sd": 1, "episodes": 30}', "eval_epsilon is None. Remove it"),
]


@pytest.mark.parametrize(("name", "content", "says"), DAMAGE)
def test_damage_is_a_sentence(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (write_run(tmp_path / "run", final=1.0) / name).write_bytes(content)
    with pytest.raises(ConfigError, match=r"\.$") as error:
        load(tmp_path / "run")
    assert [part for part in (says, str(tmp_path / "run")) if part not in str(error.value)] == []


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    left_out = (f"{tmp_path / 'loop'} cannot be read: Too many levels of symbolic links.",)
    assert write_report([tmp_path / "loop", write_run(tmp_path / "run", "adventure")], tmp_path / "out")[1] == left_out
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file; name the run's directory"):
        load(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"not a run directory; it has no config\.json"):
        load(tmp_path / "out")


def test_too_long_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.records.metrics._FILE_LIMIT", 100)
    with pytest.raises(ConfigError, match="may have at most 100"):
        load(write_run(tmp_path / "run"))
