"""Reading what a run wrote down: whole, unfinished, damaged and foreign."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ringside.report.records import RecordsError, load, newest
from ringside.report.writing import write_report
from tests.support.written_runs import write_run


def test_everything_that_a_run_wrote_is_there(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "run", seed=7, final=-19.0))
    assert (run.game, run.protocol, run.seed, run.steps, run.state) == ("pong", "nature", 7, 4_000, "finished")
    assert run.rounds["steps"].tolist() == [1_000, 2_000, 3_000, 4_000]
    assert run.rounds["mean_return_100"].tolist() == [-21.0, -20.5, -20.0, -19.5]
    assert run.rounds["loss"].tolist() == [0.5] * 4
    assert run.episodes["return"].tolist() == [-21.0, -20.0, -19.0, -18.0]
    assert run.evaluations["mean_return"].tolist() == [-20.0, -18.0]
    assert run.by_protocol["final"]["mean"] == -19.0
    assert run.by_protocol.keys() == {"final"}
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
    assert newest(run.rounds["loss"]) == 0.5
    assert newest(run.rounds["epsilon"]) == 0.1
    assert "epsiloff" not in run.rounds
    assert run.rounds["new"].tolist()[1] == 3
    assert math.isnan(newest(np.full(3, np.nan)))


WITHOUT_RULES = b'{"mean": 1, "sd": 1, "episodes": 30}'


def damage(path: Path, name: str, content: bytes) -> Path:
    """A run of which one file holds something else."""
    write_run(path, final=1.0)
    (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
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
        ("evaluation-final.json", WITHOUT_RULES, "eval_epsilon is None. Remove it"),
    ],
)
def test_damage_is_a_sentence(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    with pytest.raises(RecordsError) as error:
        load(damage(tmp_path / "run", name, content))
    assert says in str(error.value)
    assert str(tmp_path / "run") in str(error.value)
    assert str(error.value).endswith(".")


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    left_out = (f"{tmp_path / 'loop'} cannot be read: Too many levels of symbolic links.",)
    assert write_report([tmp_path / "loop", write_run(tmp_path / "run", "adventure")], tmp_path / "out")[1] == left_out
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="is a file; name the run's directory"):
        load(tmp_path / "file")
    with pytest.raises(RecordsError, match=r"not a run directory; it has no config\.json"):
        load(tmp_path / "out")
    write_run(tmp_path / "runs" / "one")
    with pytest.raises(RecordsError, match=r"it contains 1 of them: pass .*runs/\*"):
        load(tmp_path / "runs")
    (tmp_path / "runs" / "one" / "metrics.jsonl").unlink()
    with pytest.raises(RecordsError, match="never started"):
        load(tmp_path / "runs" / "one")


def test_too_long_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run")
    monkeypatch.setattr("ringside.records.metrics._FILE_LIMIT", 100)
    with pytest.raises(RecordsError, match="may have at most 100"):
        load(path)
