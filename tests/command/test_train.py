"""`launch.py train` as a user types it: a whole small run, and what is said when it is to be continued otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared.config import Config
from tests.conftest import Launch
from tests.runs import finish, start, summary

PROMISED = {"steps", "frames", "updates", "samples_per_step", "rounds", "episodes", "mean_return_100", "seconds"} | {
    *("steps_per_second", "weights_sha256", "config_digest", "protocol", "seed", "machine"),
    *("restarts", "redone_ticks", "redone_updates"),
}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four rounds."""
    path = tmp_path_factory.mktemp("train") / "run"
    former = os.umask(0)  # what is made is private all the same
    try:
        process = start(path, total_steps="1_920")
    finally:
        os.umask(former)
    printed = finish(process)
    assert "1,920 steps" in printed
    assert f"Everything is in {path}" in printed
    return path


def test_a_run_leaves_what_is_promised(run_dir: Path) -> None:
    found = summary(run_dir)
    assert found.keys() >= PROMISED
    assert (found["steps"], found["frames"], found["updates"]) == (1_920, 7_680, 240)
    config = Config.from_json(json.loads((run_dir / "config.json").read_text()))
    assert config.digest() == found["config_digest"]


def test_what_a_run_writes_is_for_its_owner_only(run_dir: Path) -> None:
    made = [run_dir, *run_dir.rglob("*")]
    assert {path.name for path in made} >= {"lock", "config.json", "summary.json", "logs", "checkpoints", "tensorboard"}
    assert not [path for path in made if path.stat().st_mode & 0o077]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--epsilon-end", "0.2"), "--epsilon-end 0.1 (now 0.2)"),
        (("--envs", "16"), "--envs 8 (now 16)"),
        (("--total-steps", "1_440"), "has already played 1_920 steps"),
    ],
)
def test_resuming_with_what_may_not_change_is_refused(
    launch: Launch, run_dir: Path, change: tuple[str, ...], says: str
) -> None:
    done = launch("--resume", str(run_dir), *change)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_another_run_is_not_overwritten(launch: Launch, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "checkpoint-00000000.json").write_text("mine")
    (tmp_path / "mine" / "config.json").write_text("mine")
    done = launch("--resume", str(run_dir), "--run-dir", "mine")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "already holds a run" in done.stderr
    assert (tmp_path / "mine" / "config.json").read_text() == "mine"


def test_what_may_change_changes(run_dir: Path) -> None:
    finish(start(run_dir, "--resume", str(run_dir), actors="4", total_steps="2_400"))
    found = summary(run_dir)
    assert (found["steps"], found["updates"], found["actors"]) == (2_400, 360, 4)
