"""The page of all runs: what it tells of each, pictures of living ones, and the page of a run below it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client, TestResponse

from ringside.watch.page import all_runs
from ringside.watch.page.all_runs import CURVE_POINTS, AllRuns, thinned
from ringside.watch.page.budget import Budget
from ringside.watch.page.overview import Overview
from shared.frame_shape import DEFAULT_FRAMES
from tests.support.watched import Pretended
from tests.support.written_runs import write_run


class Viewer:
    """A browser without a window."""

    def __init__(self, runs: Path) -> None:
        self.page = Overview(AllRuns(runs), Budget(2))
        self._client = Client(self.page)

    def get(self, path: str, key: str | None = None) -> TestResponse:
        return self._client.get(f"/{self.page.key if key is None else key}/{path}", headers={"Host": "localhost"})

    def runs(self, since: int = 0) -> dict[str, Any]:
        return self.get(f"runs?since={since}").get_json()


@pytest.fixture(autouse=True)
def reads_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_runs, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(all_runs, "READ_SECONDS", 60.0)


def by_name(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in told["runs"]}


def test_it_tells_curve_and_score_of_every_run(tmp_path: Path) -> None:
    write_run(tmp_path / "done", returns=[1.0, 3.0], evaluations=[5.0], learning_starts=1_000)
    write_run(tmp_path / "atari" / "pong-2", seed=2, ended=False, final=9.0, learning_starts=1_000)
    viewer = Viewer(tmp_path)
    found = by_name(viewer.runs())
    done, member = found["done"], found["pong-2"]
    assert (done["game"], done["method"], done["seed"], done["suite"]) == ("pong", "dqn", 1, None)
    assert (done["living"], done["finished"], done["steps"], done["total_steps"]) == (False, True, 2_000, 9_984)
    assert done["curve"] == [[1_000, 1.0], [2_000, 2.0], [2_000, 2.0]]
    assert (done["evaluation"], done["judged"]) == (5.0, None)
    assert (member["suite"], member["seed"], member["finished"], member["judged"]) == ("atari", 2, False, 9.0)


def test_a_run_that_ends_releases_its_memory_without_a_request(run: Pretended) -> None:
    before = run.mappings()
    viewer = Viewer(run.run_dir.parent)
    (told,) = viewer.runs()["runs"]
    assert told["living"]
    assert run.mappings() == before + 1
    viewer.get(f"run/{told['id']}/state")
    (run.run_dir / "live.json").unlink()
    viewer.page.maintain()
    assert run.mappings() == before
    assert not viewer.runs()["runs"][0]["living"]


def test_the_page_of_a_run_that_is_removed_is_dropped(run: Pretended) -> None:
    before = run.mappings()
    viewer = Viewer(run.run_dir.parent)
    path = f"run/{viewer.runs()['ids'][0]}/state"
    assert viewer.get(path).status_code == 200
    assert run.mappings() == before + 1
    (run.run_dir / "config.json").unlink()
    assert viewer.runs()["ids"] == []
    assert run.mappings() == before
    viewer.page.maintain()
    assert not viewer.page._pages
    assert viewer.get(path).status_code == 404


def test_only_what_has_changed_is_told_again(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    viewer = Viewer(tmp_path)
    first = viewer.runs()
    assert len(first["runs"]) == 1
    again = viewer.runs(first["version"])
    assert (again["runs"], again["ids"]) == ([], first["ids"])
    write_run(tmp_path / "two")
    later = viewer.runs(first["version"])
    assert list(by_name(later)) == ["two"]
    assert set(later["ids"]) > set(first["ids"])
    for path in sorted((tmp_path / "one").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert viewer.runs(later["version"])["ids"] == [each for each in later["ids"] if each not in first["ids"]]


def test_runs_are_read_in_turn_when_time_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_runs, "READ_SECONDS", 0.0)
    live = [Pretended(tmp_path / f"live-{number}") for number in range(2)]
    write_run(tmp_path / "done")
    viewer = Viewer(tmp_path)
    told = [viewer.runs() for _ in range(3)]
    assert [len(each["ids"]) for each in told] == [1, 2, 3]
    assert told[1]["reading"]
    for run in live:
        run.end()


def test_living_runs_have_a_moving_picture_and_their_own_page(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "live")
    run.play(3)
    viewer = Viewer(tmp_path)
    live = by_name(viewer.runs())["live"]
    assert live["living"]
    content = viewer.get("thumbnails").data
    (length,) = struct.unpack_from("<I", content)
    assert json.loads(content[4 : 4 + length]) == {"ids": [live["id"]], "shapes": [DEFAULT_FRAMES._asdict()]}
    frame = np.frombuffer(content[4 + length :], np.uint8).reshape(84, 84)
    assert np.array_equal(frame, run.memory.ring.field["frame"][0, 3, 0])
    assert viewer.get(f"run/{live['id']}").status_code == 302
    assert b"All envs" in viewer.get(f"run/{live['id']}/").data
    assert viewer.get(f"run/{live['id']}/state").get_json()["name"] == "live"
    assert viewer.get(f"run/{live['id']}/style.css").status_code == 200
    run.end()
    assert not by_name(viewer.runs())["live"]["living"]


def test_strangers_and_unknown_names_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    viewer = Viewer(tmp_path)
    assert viewer.get("").status_code == 200
    for path in ("", "runs", "thumbnails", "overview.js"):
        assert viewer.get(path, key="x").status_code == 404
    for path in ("run/0123/", "run/../x", "other.js"):
        assert viewer.get(path).status_code == 404


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text('{"play": {}}')
    (run,) = Viewer(tmp_path).runs()["runs"]
    assert run["refused"].startswith(f"{tmp_path / 'old'} cannot be watched.")


def test_long_curves_are_thinned_evenly_with_their_end() -> None:
    rows: list[list[float | None]] = [[float(step), float(step), None] for step in range(1_000)]
    points = thinned([[None, 1.0], [5.0, None], *rows])
    assert len(points) == CURVE_POINTS
    assert (points[0], points[-1]) == ([0.0, 0.0], [999.0, 999.0])
