"""`--track wandb`: what is sent, under which names, once; and that no run is disturbed. The service is a fake."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringside.recording import wandb_track
from ringside.recording.follow import Unsent
from ringside.recording.metrics import Episode, MetricsLog, cut_metrics
from ringside.recording.wandb_track import Tracker, UnsentOwn, tracking
from shared.config.checks.validate import settings
from shared.config.sections import Run
from shared.config.settings import Config
from shared.config.trust import resume_words
from shared.errors import ConfigError
from shared.files.atomic import write_atomic
from shared.process.ownership import evaluation_video
from shared.process.signals import handle_stop_signals
from tests.support.waiting import until
from tests.support.written_runs import write_run

FAKE = """
import json, os, time
class _Run:
    url = os.environ.get("FAKE_URL")
    def __init__(self, told): self.summary = self; self.say("init", told)
    def say(self, *words):
        with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps(words, default=str) + "\\n")
    def define_metric(self, *words, **more): self.say("define", words, more)
    def log(self, values): self.say("log", values)
    def update(self, values): self.say("summary", values)
    def finish(self): self.say("finish"); time.sleep(float(os.environ.get("FAKE_SECONDS", 0)))
class Video:
    def __init__(self, path, format): self.path, self.format = path, format
    def __str__(self): return "video " + os.path.basename(self.path) + " " + self.format
def init(**told):
    if os.environ.get("FAKE_ERROR"): raise RuntimeError("no key: log in first")
    return _Run(told)
"""


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[Any]]]:
    """Calls that the fake has received."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(FAKE)
    log = tmp_path / "told.jsonl"
    log.touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setenv("FAKE_LOG", str(log))
    monkeypatch.setattr(wandb_track, "POLL_SECONDS", 0.1)
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def of(kind: str, told: list[list[Any]]) -> list[Any]:
    return [words[1] for words in told if words[0] == kind]


def test_records_are_sent_under_the_names_of_the_dashboards(
    tmp_path: Path, sent: Callable[[], list[list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_URL", "https://example.org/run")
    path = write_run(tmp_path / "run", returns=[3.0, 4.0], evaluations=[5.0])
    notes: list[str] = []
    tracker = Tracker(path, notes.append)
    until(lambda: (tracker.poll(), notes)[1])
    tracker.finish()
    assert notes == ["Weights & Biases: https://example.org/run"]
    (told,) = of("init", sent())
    assert (told["name"], told["resume"], told["config"]["game"], told["config"]["batch_size"]) == (
        "run",
        "allow",
        "pong",
        32,
    )
    logged = of("log", sent())
    assert [values["steps"] for values in logged] == [1_000, 1_000, 2_000, 2_000, 2_000]
    assert logged[0] == {"charts/episodic_return": 3.0, "charts/episodic_length": 50, "steps": 1_000}
    assert logged[1]["charts/SPS"] == 100.0
    assert logged[1]["losses/td_loss"] == 0.5
    assert logged[4] == {"eval/mean_return": 5.0, "eval/episodes": 30, "steps": 2_000}
    assert of("summary", sent())[0]["weights_sha256"] == "0123456789abcdef"
    assert sent()[-1] == ["finish"]


def test_entity_group_tags_and_videos_are_sent(tmp_path: Path, sent: Callable[[], list[list[Any]]]) -> None:
    told = {"wandb_entity": "team", "wandb_group": "atari5", "wandb_tags": "first, quick,"}
    path = write_run(tmp_path / "run", returns=[3.0, 4.0], evaluations=[5.0], track="wandb", **told)
    video = evaluation_video(path, 0)
    video.parent.mkdir()
    video.touch()
    Tracker(path, print).finish()
    (init,) = of("init", sent())
    assert (init["entity"], init["group"], init["tags"]) == ("team", "atari5", ["first", "quick"])
    assert {"eval/video": "video evaluation-00000.mp4 mp4", "steps": 2_000} in of("log", sent())


@pytest.mark.parametrize("name", ["wandb_entity", "wandb_group", "wandb_tags"])
def test_settings_of_the_service_need_it_and_come_from_no_run(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is for --track wandb"):
        settings(Config().with_settings(**{name: "x"}))
    config = Config().with_settings(run_dir="runs/x", track="wandb", **{name: "x"})
    assert resume_words(config)[2:] == ["--track", "wandb", f"--{name.replace('_', '-')}", "x"]


def round_of(log: MetricsLog, number: int) -> None:
    log.log_round(number, 40 * (number + 1), {}, [Episode(0, 10 * number, 1.0, 5)], envs=4)


def names(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(record["kind"], record["evaluation" if record["kind"] == "evaluation" else "round"]) for record in found]


def test_every_record_is_sent_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    unsent = Unsent(path, {})
    assert list(unsent.records()) == []
    with MetricsLog(path) as log:
        round_of(log, 0)
        assert names(list(unsent.records())) == [("episode", 0), ("round", 0)]
        assert list(unsent.records()) == []
        log.log_evaluation(0, 1, 40, {})
        round_of(log, 1)
        assert names(list(unsent.records())) == [("evaluation", 0), ("episode", 1), ("round", 1)]


def test_episodes_wait_for_their_round_and_lines_for_their_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    unsent = Unsent(path, {})
    path.write_bytes(b'{"kind": "episode", "round": 0, "steps": 1, "return": 2.0}\n{"kind": "ro')
    assert list(unsent.records()) == []
    with open(path, "ab") as file:
        file.write(b'und", "round": 0, "steps": 1}\n')
    assert names(list(unsent.records())) == [("episode", 0), ("round", 0)]


def test_nothing_is_sent_twice_when_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for number in range(4):
            round_of(log, number)
    unsent = Unsent(path, {})
    monkeypatch.setattr("ringside.recording.follow.READ_BYTES", 500)
    assert len(list(unsent.records())) == 8, "read in several parts"
    cut_metrics(path, 2)
    with MetricsLog(path) as log:
        for number in range(2, 6):
            round_of(log, number)
    assert names(list(unsent.records())) == [(kind, number) for number in (4, 5) for kind in ("episode", "round")]
    again = Unsent(path, {"round": 4})
    assert names(list(again.records())) == [("episode", 5), ("round", 5)]


def test_a_resumed_run_goes_on_under_the_same_id_and_sends_nothing_twice(
    tmp_path: Path, sent: Callable[[], list[list[Any]]]
) -> None:
    path = write_run(tmp_path / "run", returns=[3.0, 4.0], evaluations=[])
    Tracker(path, print).finish()
    with MetricsLog(path / "metrics.jsonl") as log:
        log.log_round(2, 3_000, {}, [Episode(0, 250, 9.0, 1)], envs=10)
    Tracker(path, print).finish()
    first, second = of("init", sent())
    assert first["id"] == second["id"]
    assert [values["steps"] for values in of("log", sent())] == [1_000, 1_000, 2_000, 2_000, 2_510, 3_000]


def test_a_new_run_in_the_same_directory_is_a_new_one_there(
    tmp_path: Path, sent: Callable[[], list[list[Any]]]
) -> None:
    path = write_run(tmp_path / "run", returns=[3.0], evaluations=[])
    seen: list[str] = []
    for resume in (None, path, None):
        with tracking(Run(run_dir=path, resume=resume, track="wandb"), seen.append, print) as look:
            look("memory")
    first, second, third = (told["id"] for told in of("init", sent()))
    assert first == second != third
    assert seen == ["memory"] * 3


def test_a_refusal_of_the_service_is_shown_and_the_run_goes_on(
    tmp_path: Path, sent: Callable[[], list[list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ERROR", "1")
    notes: list[str] = []
    path = write_run(tmp_path / "run")
    tracker = Tracker(path, notes.append)
    until(lambda: (tracker.poll(), notes)[1])
    tracker.finish()
    assert len(notes) == 1
    assert "no key: log in first" in notes[0]
    assert str(path / "logs" / "track.log") in notes[0]
    assert (path / "logs" / "track.log").stat().st_mode & 0o077 == 0


def test_a_service_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, sent: Callable[[], list[list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "600")
    monkeypatch.setattr(wandb_track, "FINISH_SECONDS", 1.0)
    notes: list[str] = []
    tracker = Tracker(write_run(tmp_path / "run"), notes.append)
    child = psutil.Process(tracker._process.pid)
    until(lambda: of("init", sent()))
    tracker.finish()
    assert "did not take the rest within 1 s" in notes[-1]
    assert not child.is_running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_while_the_rest_is_sent_ends_that(
    tmp_path: Path, sent: Callable[[], list[list[Any]]], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The handler of the command does nothing: the run is over."""
    monkeypatch.setenv("FAKE_SECONDS", "600")
    monkeypatch.setattr(wandb_track, "SILENT_SECONDS", 0.0)
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        if "at most" in sentence:
            signal.raise_signal(number)

    tracker = Tracker(write_run(tmp_path / "run"), note)
    child = psutil.Process(tracker._process.pid)
    until(lambda: of("init", sent()))
    with handle_stop_signals(lambda number: None):
        tracker.finish()
    assert notes[-1] == "Weights & Biases did not take the rest: you have interrupted that."
    assert not child.is_running()


def test_own_metrics_alone_are_noted_as_sent(tmp_path: Path, sent: Callable[[], list[list[Any]]]) -> None:
    path = write_run(tmp_path / "run", returns=[3.0], evaluations=[])
    Tracker(path, print).finish()
    record = {"steps": 1_000, "round": 0, "kind": "round", "values": {"mine": 1.0}}
    (path / "own-metrics.jsonl").write_text(json.dumps(record) + "\n")
    for _ in range(2):
        Tracker(path, print).finish()
    assert sum("own/mine" in values for values in of("log", sent())) == 1


def test_own_metrics_of_other_steps_than_before_a_resume_are_sent(tmp_path: Path) -> None:
    """Six rounds were sent. The resumed run begins at boundary 2, and its callback returns values from round 4 on."""
    path, state = tmp_path / "own-metrics.jsonl", dict[str, Any]()

    def write(*records: tuple[str, int]) -> None:
        lines = [{"steps": 40 * (number + 1), "kind": kind, "values": {"mine": 1.0}} for kind, number in records]
        write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    unsent = UnsentOwn(path, state)
    write(*(("round", number) for number in range(6)), ("evaluation", 3), ("episode", 5), ("episode", 5))
    assert len(list(unsent.records())) == 9
    write(*(("round", number) for number in (0, 1, 4, 5, 6, 7)), ("episode", 5), ("evaluation", 3), ("evaluation", 6))
    found = [(record["kind"], record["steps"]) for record in UnsentOwn(path, json.loads(json.dumps(state))).records()]
    assert found == [("round", 280), ("round", 320), ("evaluation", 280)]
    assert [(record["kind"], record["steps"]) for record in unsent.records()] == found
    write(("episode", 5), ("episode", 5), ("episode", 5))
    assert len(list(unsent.records())) == 1, "the third of the same steps"


def test_without_it_nothing_is_started(tmp_path: Path) -> None:
    with tracking(Run(run_dir=tmp_path), print, print) as look:
        assert look is print
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_a_sentence_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config().with_settings(track="wandb")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"--track wandb needs the package wandb, .* --editable '\.\[wandb\]'` "):
        settings(config)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    settings(config)


def test_tracking_may_change_on_resume() -> None:
    assert Config().with_settings(track="wandb").digest() == Config().digest()
