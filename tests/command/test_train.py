"""`launch.py train` as a user types it: a whole small run, and what is said when it is to be continued otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.config import Config
from tests.conftest import Refused
from tests.runs import summary

PROMISED = {"steps", "frames", "updates", "samples_per_step", "rounds", "episodes", "mean_return_100", "seconds"} | {
    *("steps_per_second", "weights_sha256", "config_digest", "protocol", "seed", "machine"),
    *("restarts", "redone_ticks", "redone_updates"),
}


def test_a_run_leaves_what_is_promised(five_rounds: Path) -> None:
    found = summary(five_rounds)
    assert found.keys() >= PROMISED
    assert (found["steps"], found["frames"], found["updates"]) == (2_400, 9_600, 360)
    config = Config.from_json(json.loads((five_rounds / "config.json").read_text()))
    assert config.digest() == found["config_digest"]


def test_what_a_run_writes_is_for_its_owner_only(five_rounds: Path) -> None:
    made = [five_rounds, *five_rounds.rglob("*")]
    assert {path.name for path in made} >= {"lock", "config.json", "summary.json", "logs", "checkpoints", "tensorboard"}
    assert not [path for path in made if path.stat().st_mode & 0o077]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--epsilon-end", "0.2"), "--epsilon-end 0.1 (now 0.2)"),
        (("--envs", "16"), "--envs 8 (now 16)"),
        (("--total-steps", "1_440"), "has already played 2_400 steps"),
    ],
)
def test_resuming_with_what_may_not_change_is_refused(
    refused: Refused, five_rounds: Path, change: tuple[str, ...], says: str
) -> None:
    assert says in refused("--resume", str(five_rounds), *change)


def test_another_run_is_not_overwritten(refused: Refused, five_rounds: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "checkpoint-00000000.json").write_text("mine")
    (tmp_path / "mine" / "config.json").write_text("mine")
    assert "already holds a run" in refused("--resume", str(five_rounds), "--run-dir", "mine")
    assert (tmp_path / "mine" / "config.json").read_text() == "mine"
