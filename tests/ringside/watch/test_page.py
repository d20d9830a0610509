"""The page's server: whom it answers, what it tells, and that it lets go of a run that has ended."""

import json
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from werkzeug.test import Client, TestResponse

from ringside.records.metrics import Follower, NewRecords
from ringside.watch import server
from ringside.watch.server import LEAST_SECONDS, MOST_SECONDS, SHARE, STATIC, App, Budget, listen
from ringside.watch.source import MOST_ENVS, OUTLINE_POINTS, Runs
from shared.errors import ConfigError
from tests.ringside.watch.conftest import Clock
from tests.support.watched import NAMES, Pretended
from tests.support.written_runs import write_run

FRAME = 84 * 84


@pytest.fixture(autouse=True)
def has_two_cores(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "usable_cores", lambda: 2)


class Viewer:
    """A browser without a window."""

    def __init__(self, directory: Path, run_dir: Path | None = None) -> None:
        self.app = App(Runs(directory, run_dir))
        self._client = Client(self.app)
        self.run = ""

    def get(self, path: str, key: str | None = None, host: str = "localhost:1234", **headers: str) -> TestResponse:
        key = self.app.key if key is None else key
        return self._client.get(f"/{key}/{self.run}{path}", headers={"Host": host, **headers})

    def json(self, path: str) -> Any:
        return self.get(path).get_json()

    def pictures(self, query: str = "") -> tuple[Any, bytes]:
        content = self.get(f"pictures{query}").data
        (length,) = struct.unpack_from("<I", content)
        return json.loads(content[4 : 4 + length]), content[4 + length :]

    def tiles(self) -> dict[str, Any]:
        """Outlines of all runs, by name."""
        return {each["name"]: self.json(f"run/{each['id']}/outline") for each in self.json("runs")["runs"]}


def viewer_of(run: Pretended) -> Viewer:
    """A viewer of one run."""
    viewer = Viewer(run.run_dir.parent, run.run_dir)
    viewer.run = "run/0/"
    return viewer


@pytest.fixture
def viewer(run: Pretended) -> Viewer:
    return viewer_of(run)


def test_only_who_knows_the_key_is_answered(viewer: Viewer) -> None:
    paths = ("", "state", "pictures", "run.js", "outline")
    assert {viewer.get(path).status_code for path in paths} == {200}
    for wrong in ("", "x", "x" * 16, "é"):
        assert {viewer.get(path, key=wrong).status_code for path in paths} == {404}
    key, local = viewer.app.key, {"Host": "localhost"}
    assert viewer._client.post(f"/{key}/", headers=local).status_code == 404
    viewer.run = ""
    for path in ("runs", "runs.html"):
        assert (viewer.get(path).status_code, viewer.get(path, key="x").status_code) == (200, 404)
    assert viewer._client.get(f"/{key}", headers=local).location == f"/{key}/"


HOSTS = [
    *((name, 400) for name in ("evil.example", "localhost.evil.example", "10.0.0.1:80", "")),
    *((name, 200) for name in ("localhost", "localhost:9", "127.0.0.1:9")),
]


@pytest.mark.parametrize(("host", "code"), HOSTS)
def test_a_foreign_name_for_this_machine_is_refused(viewer: Viewer, host: str, code: int) -> None:
    assert viewer.get("", host=host).status_code == code


def test_answers_say_how_a_browser_may_use_them(viewer: Viewer) -> None:
    for path in ("", "state", "pictures", "missing", "run.js"):
        headers = viewer.get(path).headers
        (policy,) = headers.getlist("Content-Security-Policy")
        rules: dict[str, list[str]] = {}
        for rule in policy.split("; "):
            name, source = rule.split(" ")
            rules.setdefault(source, []).append(name.removesuffix("-src"))
        own = ["script", "style", "img", "connect"]
        assert rules == {"'none'": ["default", "base-uri", "form-action", "frame-ancestors"], "'self'": own}
        for name in ("Resource", "Opener"):
            assert headers.getlist(f"Cross-Origin-{name}-Policy") == ["same-origin"]
        words = ("Referrer-Policy", "X-Content-Type-Options", "Cache-Control")
        assert [headers.getlist(name) for name in words] == [["no-referrer"], ["nosniff"], ["no-store"]]


def test_only_its_own_files_are_served_and_they_load_nothing_from_elsewhere(viewer: Viewer) -> None:
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path in STATIC.iterdir():
        answer = viewer.get(path.name)
        assert (answer.data, answer.mimetype) == (path.read_bytes(), kinds[path.suffix])
        assert "://" not in path.read_text().replace("http://www.w3.org/", "")
    assert viewer.get("").data == (STATIC / "run.html").read_bytes()
    for path in ("../server.py", "%2e%2e/server.py", "..", "config.json", "/etc/passwd", "../9/state", "../x/state"):
        assert viewer.get(path).status_code == 404
    viewer.run = ""
    assert viewer.get("").data == (STATIC / "runs.html").read_bytes()


def test_the_titles_of_a_run_and_the_number_of_episodes_in_its_mean(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run", stop_at=18.0)
    run.memory.board.episodes[0] = 32
    viewer = viewer_of(run)
    lives = viewer.json("state")
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "summary.json").write_text(json.dumps({"episodes": 100}))
    ended = viewer.json("state")
    for told, name in ((lives, "mean of the last 32"), (ended, "mean of 100")):
        assert (told["title"], told["kind"]) == ("Pong", "nature, protocol nature, concurrent")
        assert (told["status"]["stop_at"], told["mean_name"]) == (18.0, name)
        assert "--network small" in told["status"]["changes"]
    (run.run_dir / "summary.json").unlink()
    told = viewer.json("state")
    assert (told["mean_name"], told["status"]["steps"]) == ("mean of up to 100", None), "no figure without a source"


def test_a_resumed_run_has_the_figures_of_its_files_until_it_is_prepared(run: Pretended, viewer: Viewer) -> None:
    (run.run_dir / "metrics.jsonl").write_text('{"kind": "round", "round": 3, "steps": 240, "loss": 0.5}\n')
    run.memory.board.prepared[0] = 0
    told = viewer.json("state")
    assert (told["living"], told["prepared"], told["status"]["steps"]) == (True, False, 240)
    assert {role["state"] for role in told["status"]["roles"]} == {"starting"}
    run.memory.board.prepared[0] = 1
    assert viewer.json("state")["status"]["steps"] == 0


def test_pictures_are_json_and_frames(run: Pretended, viewer: Viewer) -> None:
    run.play(4)
    told, frames = viewer.pictures("?first=2&count=3&env=5")
    assert (told["mosaic"]["first"], told["mosaic"]["envs"], told["chosen"]["env"]) == (2, 3, 5)
    assert (told["shape"], len(frames)) == ({"size": 84, "stack": 4, "channels": 1}, (3 + 4) * FRAME)
    expected = run.memory.ring.field["frame"][1, 4, 0]
    assert np.array_equal(np.frombuffer(frames[:FRAME], np.uint8).reshape(84, 84), expected)
    for query in ("?first=99&count=0&env=99", "?first=-1&env=x", "?count=1e9&first=" + "9" * 20):
        told, frames = viewer.pictures(query)
        assert len(frames) == (told["mosaic"]["envs"] + 4) * FRAME


def test_a_mosaic_has_a_bound(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "many", envs=100)
    assert viewer_of(run).pictures("?count=1000")[0]["mosaic"]["envs"] == MOST_ENVS


def test_pictures_are_made_as_often_as_the_budget_allows(run: Pretended, viewer: Viewer, clock: Clock) -> None:
    first = viewer.get("pictures").data
    run.play(1)
    assert viewer.get("pictures").data == first  # another viewer, at once
    clock.now += LEAST_SECONDS
    answer = viewer.get("pictures")
    assert answer.data != first
    assert float(answer.headers["X-Pause"]) >= LEAST_SECONDS


def test_the_cost_of_pictures_sets_their_rate(clock: Clock) -> None:
    budget = Budget(4)
    for cost, pause in ((0.024, 0.024 / (SHARE * 4)), (0.0001, LEAST_SECONDS), (10.0, MOST_SECONDS)):
        clock.now += budget.pause
        clock.cpu += cost
        assert budget.pause == 0
        budget.charge()
        assert budget.pause == pytest.approx(pause)


def test_viewers_who_look_at_different_envs_share_one_budget(viewer: Viewer, clock: Clock) -> None:
    pauses = []
    for i in range(20):
        clock.cpu += 0.006
        pauses.append(float(viewer.get(f"pictures?env={i % 2}").headers["X-Pause"]))
    assert pauses == pytest.approx([min(0.5 * (i + 1), MOST_SECONDS) for i in range(20)], abs=0.002)


def test_a_run_that_ends_releases_its_memory_without_a_request(run: Pretended, viewer: Viewer, clock: Clock) -> None:
    def a_second_passes() -> None:
        clock.sleep = Mock(side_effect=[None])
        with pytest.raises(StopIteration):
            viewer.app.release_ended()

    before = run.mappings()
    a_second_passes()
    assert run.mappings() == before
    replace(run.live, made=run.live.made + 1).write(run.run_dir)  # the next run of a process may have its descriptor
    a_second_passes()
    assert run.mappings() == before - 1
    assert viewer.json("state")["living"]
    assert run.mappings() == before
    (run.run_dir / "live.json").unlink()
    a_second_passes()
    assert run.mappings() == before - 1


def test_viewers_read_the_records_in_turn(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    read, in_turn = Follower.read, list[bool]()

    def watched(follower: Follower) -> NewRecords:
        in_turn.append(viewer.app._lock.locked())
        return read(follower)

    monkeypatch.setattr(Follower, "read", watched)
    viewer.json("state")
    viewer.json("outline")
    assert in_turn == [True] * 4


def test_a_run_that_ends_gives_its_memory_back_and_files_stand_in(run: Pretended, viewer: Viewer, clock: Clock) -> None:
    before = run.mappings()
    run.play(4)
    told = viewer.json("state")
    assert (told["living"], told["status"]["steps"], told["envs"], told["actions"]) == (True, 24, 6, list(NAMES))
    viewer.pictures()
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "metrics.jsonl").write_text('{"kind": "round", "round": 3, "steps": 240, "loss": 0.5}\n')
    told = viewer.json("state?edition=0&known=0,0,0,0")
    assert run.mappings() == before - 1
    clock.now += MOST_SECONDS
    assert viewer.get("pictures").status_code == 204
    status = told["status"]
    assert (told["living"], told["finished"], status["steps"], status["metrics"]["loss"]) == (False, False, 240, 0.5)
    described = {"name": "loss", "label": "loss", "unit": "", "meaning": "Mean loss of the updates."}
    curves = told["curves"]
    assert (curves["metrics"][0], len(curves["round"])) == (described | {"tag": "losses/td_loss"}, 1)
    role = {"busy": 0.5, "cores": 0.4, "restarts": 2}
    summary = {"steps": 600, "finished": True, "seconds": 9.0, "limit": {"sentence": "So."}, "roles": {"learner": role}}
    (run.run_dir / "summary.json").write_text(json.dumps(summary))
    told = viewer.json("state")
    status = told["status"]
    said = status["bottleneck"]["sentence"]
    assert (told["finished"], status["steps"], status["elapsed"], said) == (True, 600, 9.0, "So.")
    assert status["roles"] == [{"name": "learner", "state": "ended", "node": None, **role}]
    run.live.write(run.run_dir)  # it is resumed
    assert (viewer.json("state")["living"], viewer.get("pictures").status_code) == (True, 200)


def test_the_page_of_a_run_of_workers_names_them(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run", method="a2c", workers=3)
    run.play(4)
    viewer = viewer_of(run)
    told, chosen = viewer.json("state"), viewer.pictures("?env=5")[0]["chosen"]
    assert (told["status"]["workers"], told["envs"], chosen["lane"], chosen["owner"]) == (3, 6, 2, 1)
    assert "3 workers" in told["kind"]
    assert [role["name"] for role in told["status"]["roles"]] == ["scribe", "worker 0", "worker 1"]


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"limit": 3, "roles": [1], "steps": "x"}', '{"roles": {"a": 1}}'])
def test_a_damaged_summary_is_none(run: Pretended, viewer: Viewer, content: str) -> None:
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "summary.json").write_text(content)
    told = viewer.json("state")
    assert (told["living"], told["status"]["steps"], told["status"]["roles"]) == (False, None, [])


def test_a_run_that_goes_on_as_what_cannot_be_watched_says_so(run: Pretended, viewer: Viewer) -> None:
    (run.run_dir / "live.json").write_text('{"format": 99}')
    with pytest.raises(ConfigError, match="format 99"):
        viewer_of(run)
    run.live.write(run.run_dir)
    (run.run_dir / "live.json").unlink()
    assert not viewer.json("state")["living"]
    (run.run_dir / "live.json").write_text('{"format": 99}')
    assert "format 99" in viewer.json("state")["status"]["warnings"][0]
    run.live.write(run.run_dir)
    assert viewer.json("state")["living"]


def test_a_run_whose_directory_moves_is_watched_on(run: Pretended, tmp_path: Path, viewer: Viewer) -> None:
    run.run_dir.rename(tmp_path / "moved")
    assert not viewer.json("state")["living"]  # the file that says that it lives is gone
    (tmp_path / "moved").rename(run.run_dir)
    assert viewer.json("state")["living"]


def test_only_this_machine_is_listened_to_and_keys_are_long(tmp_path: Path) -> None:
    """`tests/command/test_watch.py` has the ports that are refused."""
    with listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    keys = {Viewer(tmp_path).app.key for _ in range(8)}
    assert (len(keys), min(map(len, keys)) >= 16) == (8, True), "96 bits"


# The list of runs


def test_the_list_tells_curve_and_score_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "done", returns=[1.0, 3.0], evaluations=[5.0], learning_starts=1_000)
    write_run(tmp_path / "atari" / "pong-2", seed=2, ended=False, returns=[0.0] * 120, learning_starts=1_000)
    live = Pretended(tmp_path / "live")
    for run_dir in (tmp_path / "done", live.run_dir):  # a run that was resumed has the summary of its former start
        summary = {"finished": True, "steps": 2_000, "episodes": 2, "mean_return_100": 2.0, "best_return": 77.0}
        (run_dir / "summary.json").write_text(json.dumps(summary))
    viewer = Viewer(tmp_path)
    assert [run["living"] for run in viewer.json("runs")["runs"]] == [True, False, False], "the newest first"
    found = viewer.tiles()
    done, member = found["done"], found["atari/pong-2"]
    assert (done["status"]["best_return"], found["live"]["status"]["best_return"]) == (77.0, None)
    assert (done["status"]["steps"], done["status"]["total_steps"]) == (2_000, 9_984)
    told = {"title": "Pong", "method": "dqn", "seed": 1, "finished": True, "mean_name": "mean of the last 2"}
    assert done.items() >= (told | {"evaluation": 5.0, "curve": [[1_000, 1.0], [2_000, 2.0]]}).items()
    assert (member["seed"], member["finished"], member["mean_name"]) == (2, False, "mean of 100")
    assert viewer.json(f"run/{viewer.json('runs')['runs'][0]['id']}/state")["name"] == "live"
    monkeypatch.setattr("ringside.watch.source.MOST_RUNS", 2)
    listed = viewer.json("runs")
    assert (listed["all"], [run["living"] for run in listed["runs"]]) == (3, [True, False])


def test_a_run_in_the_list_changes_with_its_files_and_keeps_its_number(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "one")
    viewer = Viewer(tmp_path)

    def listed() -> dict[str, tuple[int, str]]:
        return {each["name"]: (each["id"], each["seen"]) for each in viewer.json("runs")["runs"]}

    seen = [listed()["one"]]
    assert listed()["one"] == seen[0]
    for change in (
        lambda: (run.run_dir / "metrics.jsonl").write_text("{}\n"),
        lambda: (run.run_dir / "summary.json").write_text("{}"),
        lambda: (run.run_dir / "live.json").unlink(),
        lambda: os.utime(run.run_dir / "config.json", (1, 1)),
    ):
        change()
        seen.append(listed()["one"])
    assert len(set(seen)) == 5
    write_run(tmp_path / "two")
    assert {name: id_ for name, (id_, _) in listed().items()} == {"one": 0, "two": 1}
    (run.run_dir / "config.json").unlink()
    assert {name: id_ for name, (id_, _) in listed().items()} == {"two": 1}
    assert "is not a run" in viewer.json("run/0/outline")["refused"]


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text('{"play": {}}')
    assert Viewer(tmp_path).tiles()["old"]["refused"].startswith(f"{tmp_path / 'old'} cannot be watched.")


def test_long_curves_are_thinned_evenly_with_their_end(tmp_path: Path) -> None:
    write_run(tmp_path / "long", returns=[1.0] * 900)
    (tile,) = Viewer(tmp_path).tiles().values()
    steps = [step for step, _ in tile["curve"]]
    assert OUTLINE_POINTS / 2 < len(steps) <= 2 * OUTLINE_POINTS
    assert (set(np.diff(steps[:-1])), steps[-1]) == ({8_000}, 900_000)
