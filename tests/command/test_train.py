"""`launch.py train` as a user types it: a whole small run, and what is said when it is to be continued otherwise."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import ringside
from ringside.records.metrics import MetricsLog
from ringside.run import planning, training
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.plan import Plan
from tests.conftest import Refused
from tests.support.checkpoints import rewrite
from tests.support.configurations import settled
from tests.support.runs import summary

PROMISED = {"steps", "frames", "updates", "samples_per_step", "rounds", "episodes", "mean_return_100", "seconds"} | {
    *("steps_per_second", "weights_sha256", "config_digest", "protocol", "seed", "machine"),
    *("restarts", "redone_ticks", "redone_updates"),
}


@pytest.fixture
def run_dir(five_rounds: Path, tmp_path: Path) -> Path:
    """Directory of a finished run, which the test may change."""
    shutil.copytree(five_rounds, tmp_path / "run")
    return tmp_path / "run"


def change_config(run_dir: Path, section: str, **values: object) -> None:
    """Change a section of the configuration in the newest checkpoint."""
    (manifest,) = run_dir.glob("checkpoints/checkpoint-00000005.json")
    config = json.loads(manifest.read_text())["config"]
    config[section] |= values
    rewrite(manifest, config=config)


def test_a_run_leaves_what_is_promised(five_rounds: Path) -> None:
    found = summary(five_rounds)
    assert found.keys() >= PROMISED
    assert (found["steps"], found["frames"], found["updates"]) == (2_400, 9_600, 360)
    config = Config.from_json(json.loads((five_rounds / "config.json").read_text()))
    assert config.digest() == found["config_digest"]


def test_files_of_a_run_are_for_its_owner_only(five_rounds: Path) -> None:
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


def test_a_finished_run_is_not_resumed_and_nothing_of_it_is_touched(refused: Refused, run_dir: Path) -> None:
    (run_dir / "evaluation-final.json").write_text('{"version": 5, "mean": 1.0}')

    def files() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run_dir.rglob("*") if path.is_file()}

    before = files()
    sentence = refused("--resume", str(run_dir))
    assert f"--resume {run_dir} is a finished run, of 2_400 steps; pass --total-steps N" in sentence
    assert "is a finished run" in refused("--resume", str(run_dir), "--total-steps", "2_390"), "the same last round"
    assert "is a finished run" in refused("--resume", str(run_dir), "--run-dir", "elsewhere")
    with pytest.raises(ringside.ConfigError, match="is a finished run"):
        ringside.train(resume=run_dir)
    assert files() == before

    ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_401))
    (run_dir / "summary.json").unlink()  # killed before it was written: a resume writes it
    ringside.plan(ringside.starting_point(None, run_dir))


def test_a_run_whose_last_evaluation_is_missing_is_resumed(run_dir: Path) -> None:
    change_config(run_dir, "evaluate", eval_every_steps=1_200)
    with MetricsLog(run_dir / "metrics.jsonl") as log:
        log.log_evaluation(0, 3, 1_440, {"mean_return": 1.0})
        ringside.plan(ringside.starting_point(None, run_dir))
        log.log_evaluation(1, 5, 2_400, {"mean_return": 1.0})
    with pytest.raises(ringside.ConfigError, match="is a finished run"):
        ringside.plan(ringside.starting_point(None, run_dir))


def test_a_plan_does_not_run_where_another_run_has_been_since(five_rounds: Path, tmp_path: Path) -> None:
    """As a plan that is run twice, or a command that is repeated while the first run saves."""
    ready = Plan(settled(run_dir=tmp_path / "run", network="small", envs=4), 4)
    shutil.copytree(five_rounds, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="already holds a run"):
        training.run(ready, lambda status: None, lambda sentence: None)
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    del before[tmp_path / "run" / "lock"], after[tmp_path / "run" / "lock"]
    assert after == before


def test_a_resume_is_checked_again_once_the_directory_is_locked(run_dir: Path) -> None:
    """Meanwhile another run may have ended in it, or have taken the checkpoint away."""
    ready = ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_880))
    with training._owned(ready) as checkpoint:
        assert checkpoint is not None
        assert checkpoint.path == run_dir / "checkpoints" / "checkpoint-00000005.json"
    finished = replace(ready, config=replace(ready.config, learn=replace(ready.config.learn, total_steps=2_400)))
    with pytest.raises(ConfigError, match="is a finished run"), training._owned(finished):
        pass
    checkpoint.path.unlink()
    with pytest.raises(ConfigError, match="cannot be continued"), training._owned(ready):
        pass


@pytest.mark.parametrize("tracked", [True, False])
def test_a_resume_without_the_tracking_of_before_says_so(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, tracked: bool
) -> None:
    change_config(run_dir, "run", track="wandb" if tracked else "off")
    monkeypatch.setattr(training.supervisor, "supervise", lambda *of_run: None)
    notes: list[str] = []
    ready = ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_880))
    training.run(ready, lambda status: None, notes.append)
    said = [note for note in notes if "Weights & Biases" in note]
    sentence = "This run was sent to Weights & Biases before; pass --track wandb to send the rest, too."
    assert said == ([sentence] if tracked else [])


def test_another_run_is_not_overwritten(refused: Refused, five_rounds: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "checkpoint-00000000.json").write_text("mine")
    (tmp_path / "mine" / "config.json").write_text("mine")
    assert "already holds a run" in refused("--resume", str(five_rounds), "--total-steps", "4_800", "--run-dir", "mine")
    assert (tmp_path / "mine" / "config.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "boundary", "sentence"),
    [
        (
            {},
            0,
            "Learning begins at step 59,904, with the first whole round after --learning-starts 50_000.",
        ),
        ({"envs": 10, "lane_envs": 2, "round_steps": 100}, 0, "Learning begins at step 50,000."),
        ({}, 5, "Learning begins at step 59,904, with the first whole round after --learning-starts 50_000."),
        ({}, 6, None),
        ({"total_steps": 50_000}, 0, None),
    ],
)
def test_the_step_at_which_learning_begins_is_said_before_a_run(
    settings: dict[str, int], boundary: int, sentence: str | None
) -> None:
    ready = planning.check(Config().with_settings(device="cpu", **settings))
    assert training.learning_begins_sentence(ready, boundary) == sentence


def test_a_setting_without_effect_is_refused_from_python_too() -> None:
    with pytest.raises(ConfigError, match="--train-every has no effect with --method a2c"):
        ringside.train(preset="quick", method="a2c", train_every=4)
