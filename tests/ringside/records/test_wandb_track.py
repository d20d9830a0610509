"""`--track wandb`: what is sent, under which names, once; and that no run is disturbed. The service is a fake."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from ringside.records import wandb_track
from ringside.records.metrics import Episode, MetricsLog, Unsent, cut_metrics
from shared.config.sections import Run
from shared.config.settings import Config
from shared.config.trust import resume_words
from shared.config.validate import settings
from shared.errors import ConfigError
from shared.files.atomic import write_atomic
from tests.support.waiting import until
from tests.support.written_runs import log_rounds, write_run


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package wandb: `inits` and `logged` are what it has received; the end of a run waits for `ended`."""
    fake = MagicMock(url=None, summary={}, inits=[], logged=[], ended=threading.Event())
    fake.init.side_effect = lambda **told: fake.inits.append(told) or fake
    fake.log.side_effect = fake.logged.append
    fake.finish.side_effect = lambda: fake.ended.wait(20)
    fake.ended.set()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(wandb_track, "POLL_SECONDS", 0.05)
    yield fake
    fake.ended.set()


def steps(service: Any) -> list[int]:
    """Steps of the values that were sent, in their order."""
    return [values["steps"] for values in service.logged]


def track(path: Path, resume: Path | None = Path()) -> list[str]:
    """Track a run that is over at once; returns what was said."""
    notes: list[str] = []
    with wandb_track.tracking(Run(run_dir=path, resume=resume, track="wandb"), lambda at: None, notes.append) as look:
        look("memory")
    return notes


def test_records_are_sent_under_the_names_of_the_dashboards(tmp_path: Path, service: Any) -> None:
    service.url = "https://example.org/run"
    told = {"wandb_entity": "team", "wandb_group": "atari5", "wandb_tags": "first, quick,"}
    path = write_run(tmp_path / "run", returns=[3.0, 4.0], evaluations=[5.0], track="wandb", **told)
    assert track(path) == ["Weights & Biases: https://example.org/run"]
    (init,) = service.inits
    assert (init["name"], init["resume"]) == ("run", "allow")
    assert (init["config"]["game"], init["config"]["batch_size"]) == ("pong", 32)
    assert (init["entity"], init["group"], init["tags"]) == ("team", "atari5", ["first", "quick"])
    assert steps(service) == [1_000, 1_000, 2_000, 2_000, 2_000]
    logged = service.logged
    assert logged[0] == {"charts/episodic_return": 3.0, "charts/episodic_length": 50, "steps": 1_000}
    assert (logged[1]["charts/SPS"], logged[1]["losses/td_loss"]) == (100.0, 0.5)
    assert logged[4] == {"eval/mean_return": 5.0, "eval/episodes": 30, "steps": 2_000}
    assert service.summary["weights_sha256"] == "0123456789abcdef"


def test_records_are_sent_and_the_address_is_shown_during_the_run(tmp_path: Path, service: Any) -> None:
    path = write_run(tmp_path / "run", returns=[3.0], evaluations=[], track="wandb")
    notes, seen = list[str](), list[str]()
    with wandb_track.tracking(Run(run_dir=path, resume=path, track="wandb"), seen.append, notes.append) as look:
        until(lambda: (look("memory"), notes)[1])
        assert (notes, set(seen)) == ([f"Weights & Biases: kept in {path / 'wandb'}"], {"memory"})
        until(lambda: len(service.logged) == 2)
        log_rounds(path, 100, 101)
        until(lambda: len(service.logged) == 4)
    assert len(service.logged) == 4


@pytest.mark.parametrize("name", ["wandb_entity", "wandb_group", "wandb_tags"])
def test_settings_of_the_service_need_it_and_come_from_no_run(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} x needs --track wandb"):
        settings(Config().with_settings(**{name: "x"}))
    config = Config().with_settings(run_dir="runs/x", track="wandb", **{name: "x"})
    assert resume_words(config)[2:] == ["--track", "wandb", f"--{name.replace('_', '-')}", "x"]


def names(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(record["kind"], record["evaluation" if record["kind"] == "evaluation" else "round"]) for record in found]


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
    log_rounds(tmp_path, 0, 4)
    unsent = Unsent(path, {})
    monkeypatch.setattr("ringside.records.metrics.READ_BYTES", 500)
    assert len(list(unsent.records())) == 8, "read in several parts"
    cut_metrics(path, 2)
    log_rounds(tmp_path, 2, 6)
    assert names(list(unsent.records())) == [(kind, number) for number in (4, 5) for kind in ("episode", "round")]
    again = Unsent(path, {"round": 4})
    assert names(list(again.records())) == [("episode", 5), ("round", 5)]


def test_a_resumed_run_goes_on_under_the_same_id_and_sends_nothing_twice(tmp_path: Path, service: Any) -> None:
    path = write_run(tmp_path / "run", returns=[3.0, 4.0], evaluations=[])
    track(path)
    with closing(MetricsLog(path / "metrics.jsonl")) as log:
        log.log_round(2, 3_000, {}, [Episode(0, 250, 9.0, 1)], envs=10)
    track(path)
    first, second = service.inits
    assert first["id"] == second["id"]
    assert steps(service) == [1_000, 1_000, 2_000, 2_000, 2_510, 3_000]


def test_a_new_run_in_the_same_directory_is_a_new_one_there(tmp_path: Path, service: Any) -> None:
    path = write_run(tmp_path / "run", returns=[3.0], evaluations=[])
    for resume in (None, path, None):
        track(path, resume)
    first, second, third = (told["id"] for told in service.inits)
    assert first == second != third


def test_a_refusal_of_the_service_is_shown_once(tmp_path: Path, service: Any) -> None:
    service.init.side_effect = RuntimeError("no key:\nlog in first")
    told = "Weights & Biases gets nothing more of this run; the run continues: no key: log in first"
    assert track(write_run(tmp_path / "run")) == [told]


def test_a_silent_service_is_not_waited_for(tmp_path: Path, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service.ended.clear()
    monkeypatch.setattr(wandb_track, "FINISH_SECONDS", 1.0)
    assert "did not take the rest within 1 s" in "".join(track(write_run(tmp_path / "run")))
    service.teardown.assert_called_once()


def test_own_metrics_of_other_steps_than_before_a_resume_are_sent_once(tmp_path: Path, service: Any) -> None:
    """Six rounds were sent. The resumed run begins at boundary 2, and its callback returns values from round 4 on."""
    path = write_run(tmp_path / "run", returns=[], evaluations=[])

    def write(*records: tuple[str, int]) -> None:
        lines = [{"steps": 40 * (number + 1), "kind": kind, "values": {"mine": 1.0}} for kind, number in records]
        write_atomic(path / "own-metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())

    write(*(("round", number) for number in range(6)), ("evaluation", 3), ("episode", 5), ("episode", 5))
    track(path)
    assert (len(service.logged), service.logged[0]) == (9, {"own/mine": 1.0, "steps": 40})
    service.logged.clear()
    write(*(("round", number) for number in (0, 1, 4, 5, 6, 7)), ("episode", 5), ("evaluation", 3), ("evaluation", 6))
    for _ in range(2):
        track(path)
    assert steps(service) == [280, 320, 280]


def test_without_it_nothing_is_started(tmp_path: Path) -> None:
    with wandb_track.tracking(Run(run_dir=tmp_path), print, print) as look:
        assert look is print
    assert list(tmp_path.iterdir()) == []


def test_tracking_may_change_on_resume() -> None:
    assert Config().with_settings(track="wandb").digest() == Config().digest()
