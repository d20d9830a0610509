"""The page's server: whom it answers, what it tells, and that it lets go of a run that has ended."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from werkzeug.test import Client, TestResponse
from werkzeug.wrappers import Request

from ringside.recording.follow import Follower, NewRecords
from ringside.recording.metrics import MetricsLog
from ringside.watch.page import source as module
from ringside.watch.page.budget import LEAST_SECONDS, MOST_SECONDS, SHARE, Budget
from ringside.watch.page.keyed_app import FRAME as SHARED_FRAME
from ringside.watch.page.keyed_app import HEADERS, PAGES, STATIC
from ringside.watch.page.server import Page, listen
from ringside.watch.page.source import Source
from shared.errors import ConfigError
from shared.process.ownership import evaluation_video
from tests.support.watched import NAMES, Pretended

FRAME = 84 * 84


class Clock:
    """Wall-clock and processor time, set by hand."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.cpu = 5.0

    def budget(self, cores: float = 2) -> Budget:
        return Budget(cores, lambda: self.wall, lambda: self.cpu)


class Viewer:
    """A browser without a window."""

    def __init__(self, run_dir: Path) -> None:
        self.clock = Clock()
        self.page = Page(Source(run_dir), self.clock.budget())
        self._client = Client(self.page)

    def get(self, path: str, key: str | None = None, host: str = "localhost:1234", **headers: str) -> TestResponse:
        key = self.page.key if key is None else key
        return self._client.get(f"/{key}/{path}", headers={"Host": host, **headers})

    def state(self, query: str = "") -> dict[str, object]:
        self.clock.wall += 10
        told: dict[str, object] = self.get(f"state{query}").get_json()
        return told

    def pictures(self, query: str = "") -> tuple[dict[str, object], bytes]:
        content = self.get(f"pictures{query}").data
        (length,) = struct.unpack_from("<I", content)
        return json.loads(content[4 : 4 + length]), content[4 + length :]


def test_only_who_knows_the_key_is_answered(run: Pretended) -> None:
    viewer = Viewer(run.run_dir)
    assert viewer.get("").status_code == 200
    for key in ("", "x", "x" * 16, "é"):
        for path in ("", "state", "pictures", "page.js"):
            assert viewer.get(path, key=key).status_code == 404
    assert viewer._client.get(f"/{viewer.page.key}", headers={"Host": "localhost"}).location == f"/{viewer.page.key}/"
    assert viewer._client.post(f"/{viewer.page.key}/", headers={"Host": "localhost"}).status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:80", ""])
def test_a_foreign_name_for_this_machine_is_refused(run: Pretended, host: str) -> None:
    assert Viewer(run.run_dir).get("", host=host).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:9"])
def test_its_own_names_are_taken(run: Pretended, host: str) -> None:
    assert Viewer(run.run_dir).get("", host=host).status_code == 200


def test_every_answer_says_what_a_browser_may_do_with_it(run: Pretended) -> None:
    viewer = Viewer(run.run_dir)
    for path in ("", "state", "pictures", "missing", "../page.js", "%2e%2e/server.py"):
        answer = viewer.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]
    for path in STATIC.iterdir():
        if path.name not in (SHARED_FRAME, *PAGES):
            assert viewer.get(path.name).data == path.read_bytes()
        assert "://" not in path.read_text().replace("http://www.w3.org/", "")  # nothing is loaded from elsewhere


def test_pages_have_one_frame(run: Pretended) -> None:
    viewer = Viewer(run.run_dir)
    assert viewer.get(SHARED_FRAME).status_code == 404
    for name, (title, script) in PAGES.items():
        page = viewer.get(name).text
        assert page.startswith("<!doctype html>")
        assert f"<title>{title}</title>" in page
        assert f'src="{script}"' in page
        assert (STATIC / name).read_text() in page
        assert "$" not in page


def test_the_titles_of_a_run_and_the_number_of_episodes_in_its_mean(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run", stop_at=18.0)
    (tmp_path / "suite.json").write_text('{"runs": ["first", "run"]}')
    run.memory.board.episodes[0] = 32
    viewer = Viewer(run.run_dir)
    lives = viewer.state()["status"]
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "summary.json").write_text(json.dumps({"episodes": 100}))
    ended = viewer.state()["status"]
    for told, name in ((lives, "mean of the last 32"), (ended, "mean of 100")):
        assert (told["preset"], told["suite_place"], told["stop_at"]) == ("nature", "run 2 of 2", 18.0)  # type: ignore[index]
        assert "--network small" in told["changes"]  # type: ignore[operator, index]
        assert told["mean_name"] == name  # type: ignore[index]
    (run.run_dir / "summary.json").unlink()
    assert viewer.state()["status"]["mean_name"] == "mean of up to 100"  # type: ignore[index]


def test_the_state_of_a_living_run(run: Pretended) -> None:
    run.play(4)
    told = Viewer(run.run_dir).state()
    assert (told["living"], told["game"], told["envs"], told["actions"]) == (True, "pong", 6, list(NAMES))
    assert told["status"]["steps"] == 24  # type: ignore[index]
    assert [role["name"] for role in told["status"]["roles"]][:2] == ["inference", "learner"]  # type: ignore[index]


def test_pictures_are_json_and_frames(run: Pretended) -> None:
    run.play(4)
    told, frames = Viewer(run.run_dir).pictures("?first=2&count=3&env=5")
    assert (told["mosaic"]["first"], told["mosaic"]["envs"], told["chosen"]["env"]) == (2, 3, 5)  # type: ignore[index]
    assert told["shape"] == {"size": 84, "stack": 4, "channels": 1}
    assert len(frames) == (3 + 4) * FRAME
    expected = run.memory.ring.field["frame"][1, 4, 0]
    assert np.array_equal(np.frombuffer(frames[:FRAME], np.uint8).reshape(84, 84), expected)


@pytest.mark.parametrize("query", ["?first=99&count=0&env=99", "?first=-1&env=x", "?count=1e9&first=" + "9" * 20])
def test_numbers_that_no_env_has_are_brought_to_ones_that_have(run: Pretended, query: str) -> None:
    told, frames = Viewer(run.run_dir).pictures(query)
    assert len(frames) == (told["mosaic"]["envs"] + 4) * FRAME  # type: ignore[index]


def test_content_is_packed_as_the_viewer_understands_it(run: Pretended) -> None:
    run.memory.ring.field["frame"][:] = 7
    viewer = Viewer(run.run_dir)
    plain = viewer.get("pictures").data
    packed = viewer.get("pictures", **{"Accept-Encoding": "gzip, deflate, br, zstd"})
    assert packed.headers["Content-Encoding"] == "zstd"
    assert zstandard.ZstdDecompressor().decompress(packed.data) == plain
    packed = viewer.get("pictures", **{"Accept-Encoding": "gzip, zstd;q=0"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain


def test_two_threads_pack_their_responses_at_the_same_time(run: Pretended) -> None:
    page = Viewer(run.run_dir).page
    request = Request({"HTTP_ACCEPT_ENCODING": "zstd"})
    contents = [np.random.default_rng(seed).integers(0, 4, 200_000, np.uint8).tobytes() for seed in range(2)]

    def pack(content: bytes) -> list[bytes]:
        return [page.packed(request, content, "application/json").data for _ in range(200)]

    with ThreadPoolExecutor(2) as threads:
        for content, packed in zip(contents, threads.map(pack, contents), strict=True):
            assert {zstandard.decompress(data) for data in packed} == {content}


def test_pictures_are_made_as_often_as_the_budget_allows(run: Pretended) -> None:
    viewer = Viewer(run.run_dir)
    viewer.get("pictures")
    first = viewer.get("pictures").data
    run.play(1)
    assert viewer.get("pictures").data == first  # another viewer, at once
    viewer.clock.wall += LEAST_SECONDS
    answer = viewer.get("pictures")
    assert answer.data != first
    assert float(answer.headers["X-Pause"]) >= LEAST_SECONDS


def test_the_cost_of_pictures_sets_their_rate() -> None:
    clock = Clock()
    budget = clock.budget(cores=4)
    pauses = []
    for cost in [0.024] * 20 + [0.0001] * 20 + [10.0] * 20:
        budget.charge()
        pauses.append(budget.pause)
        clock.wall += budget.pause
        clock.cpu += cost
        assert budget.due
    assert pauses[19] == pytest.approx(0.024 / (SHARE * 4), rel=0.01)
    assert pauses[39] == pytest.approx(LEAST_SECONDS)
    assert pauses[-1] == pytest.approx(MOST_SECONDS)


def test_viewers_who_look_at_different_envs_share_one_budget(run: Pretended) -> None:
    viewer = Viewer(run.run_dir)
    pauses = []
    for i in range(20):
        pauses.append(float(viewer.get(f"pictures?env={i % 2}").headers["X-Pause"]))
        viewer.clock.cpu += 0.006
    assert pauses[-1] > 4 * pauses[0]
    viewer.clock.cpu += 50  # a page is loaded: that is once
    viewer.get("page.js")
    viewer.clock.wall += 20
    assert float(viewer.get("pictures").headers["X-Pause"]) < MOST_SECONDS / 4


def test_a_run_that_ends_releases_its_memory_without_a_request(run: Pretended) -> None:
    before = run.mappings()
    viewer = Viewer(run.run_dir)
    viewer.page.maintain()
    assert run.mappings() == before + 1
    (run.run_dir / "live.json").unlink()
    viewer.page.maintain()
    assert run.mappings() == before
    run.live.write(run.run_dir)
    viewer.clock.wall += 20
    assert viewer.state()["living"]


def test_a_run_that_follows_in_the_same_process_is_another(run: Pretended) -> None:
    """Its memory may have the descriptor of the one before."""
    viewer = Viewer(run.run_dir)
    replace(run.live, made=run.live.made + 1).write(run.run_dir)
    before = run.mappings()
    viewer.page.maintain()
    assert run.mappings() == before - 1


def test_two_threads_read_the_records_in_turn(run: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(run.run_dir)
    inside, asked, overlapped = threading.Event(), threading.Event(), threading.Event()
    read = Follower.read

    def watched(follower: Follower) -> NewRecords:
        if inside.is_set():
            overlapped.set()
        inside.set()
        if threading.current_thread() is threading.main_thread():
            assert asked.wait(10)
            overlapped.wait(0.1)
        inside.clear()
        return read(follower)

    def other() -> None:
        assert inside.wait(10)
        asked.set()
        source.curves(0, [])

    monkeypatch.setattr(Follower, "read", watched)
    thread = threading.Thread(target=other)
    thread.start()
    source.curves(0, [])
    thread.join(10)
    assert not thread.is_alive()
    assert not overlapped.is_set()


def test_a_run_that_ends_gives_its_memory_back_and_files_stand_in(run: Pretended) -> None:
    before = run.mappings()
    viewer = Viewer(run.run_dir)
    viewer.state()
    viewer.pictures()
    assert run.mappings() == before + 1
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "metrics.jsonl").write_text('{"kind": "round", "round": 3, "steps": 240, "loss": 0.5}\n')
    viewer.state()  # which reads the records
    told = viewer.state("?edition=0&known=0,0,0,0")
    assert run.mappings() == before
    assert viewer.get("pictures").status_code == 204
    assert (told["living"], told["finished"]) == (False, False)
    assert told["status"]["steps"] == 240  # type: ignore[index]
    loss = told["status"]["metrics"][0]  # type: ignore[index]
    assert (loss["name"], loss["label"], loss["unit"], loss["value"]) == ("loss", "loss", "", 0.5)
    assert loss["meaning"] == told["curves"]["metrics"][0]["meaning"] == "Mean loss of the updates."  # type: ignore[index]
    assert len(told["curves"]["round"]) == 1  # type: ignore[index]
    role = {"busy": 0.5, "cores": 0.4, "restarts": 2}
    summary = {"steps": 600, "finished": True, "seconds": 9.0, "limit": {"sentence": "So."}, "roles": {"learner": role}}
    (run.run_dir / "summary.json").write_text(json.dumps(summary))
    told = viewer.state()
    assert told["finished"]
    assert told["status"]["roles"] == [{"name": "learner", "state": "ended", **role}]  # type: ignore[index]
    assert told["status"]["bottleneck"] == {"sentence": "So."}  # type: ignore[index]
    run.live.write(run.run_dir)  # it is resumed
    assert viewer.state()["living"]
    assert viewer.get("pictures").status_code == 200


@pytest.mark.parametrize(("method", "has_epsilon"), [("dqn", True), ("a2c", False)])
def test_the_page_knows_if_there_is_an_epsilon(run: Pretended, method: str, has_epsilon: bool) -> None:
    (run.run_dir / "live.json").unlink()
    config = run.config.with_settings(method=method, batch_size=20)
    (run.run_dir / "config.json").write_text(json.dumps(config.to_json()))
    assert Viewer(run.run_dir).state()["has_epsilon"] == has_epsilon


def test_the_page_of_a_run_of_workers_names_them(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run", method="a2c", workers=3)
    run.play(4)
    viewer = Viewer(run.run_dir)
    told = viewer.state()
    assert (told["workers"], told["envs"]) == (3, 6)
    roles = told["status"]["roles"]  # type: ignore[index]
    assert [role["name"] for role in roles] == ["scribe", "worker 0", "worker 1"]
    assert viewer.pictures("?env=5")[0]["chosen"]["is_worker"]  # type: ignore[index]
    run.end()


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"limit": 3, "roles": [1], "steps": "x"}', '{"roles": {"a": 1}}'])
def test_a_damaged_summary_is_none(run: Pretended, content: str) -> None:
    (run.run_dir / "live.json").unlink()
    (run.run_dir / "summary.json").write_text(content)
    assert not Viewer(run.run_dir).state()["living"]


def test_a_run_that_goes_on_as_what_cannot_be_watched_says_so(run: Pretended) -> None:
    (run.run_dir / "live.json").unlink()
    viewer = Viewer(run.run_dir)
    (run.run_dir / "live.json").write_text('{"format": 99}')
    assert "format 99" in viewer.state()["status"]["warnings"][0]  # type: ignore[index]
    run.live.write(run.run_dir)
    assert viewer.state()["living"]


def test_a_run_whose_directory_moves_is_watched_on(run: Pretended, tmp_path: Path) -> None:
    viewer = Viewer(run.run_dir)
    run.run_dir.rename(tmp_path / "moved")
    assert not viewer.state()["living"]  # the file that says that it lives is gone
    (tmp_path / "moved").rename(run.run_dir)
    assert viewer.state()["living"]


def test_videos_of_evaluations_are_listed_and_played_in_parts(run: Pretended, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4
    (tmp_path / "elsewhere.mp4").write_bytes(content)
    (run.run_dir / "videos").mkdir()
    with MetricsLog(run.run_dir / "metrics.jsonl") as log:
        for number in range(3):
            log.log_evaluation(number, number, 100 * number, {"mean_return": 2.5 + number})
    evaluation_video(run.run_dir, 0).write_bytes(b"first")
    evaluation_video(run.run_dir, 1).symlink_to(tmp_path / "elsewhere.mp4")
    evaluation_video(run.run_dir, 2).write_bytes(content)
    viewer = Viewer(run.run_dir)
    viewer.state()  # which reads the evaluations
    assert viewer.state()["videos"] == [[2, 200, 4.5], [0, 0, 2.5]]
    whole = viewer.get("video/2")
    assert (whole.status_code, whole.data, whole.mimetype) == (200, content, "video/mp4")
    part = viewer.get("video/2", Range="bytes=1000-")
    assert (part.status_code, part.data) == (206, content[1000:])
    assert viewer.get("video/2", Range="bytes=5000-").status_code == 416
    for name in ("video/1", "video/7", "video/", "video/../config.json", "video"):
        assert viewer.get(name).status_code == 404


def test_a_mosaic_has_a_bound(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "many", envs=100)
    assert Viewer(run.run_dir).pictures("?count=1000")[0]["mosaic"]["envs"] == module.MOST_ENVS  # type: ignore[index]
    run.end()


def test_a_port_that_is_taken_or_none() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="is in use: pass another"):
            listen(taken.getsockname()[1])
    with pytest.raises(ConfigError, match="--port 70000 is not a port"):
        listen(70_000)
    with listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_a_key_is_long_and_another_each_time(tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run")
    keys = {Viewer(run.run_dir).page.key for _ in range(8)}
    assert len(keys) == 8
    assert min(map(len, keys)) >= 16, "96 bits"
    run.end()


def test_a_page_loads_from_its_own_server_alone() -> None:
    rules = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert {rules.pop(name) for name in ("default-src", "base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert rules == dict.fromkeys(("script-src", "style-src", "img-src", "media-src", "connect-src"), "'self'")
    assert {name: value for name, value in HEADERS.items() if name != "Content-Security-Policy"} == {
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
