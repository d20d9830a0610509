"""The command `train` as a user types it: a whole small run, and how it is continued, also with another arithmetic."""

import json
import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import ringside
from ringside.command.train import configuration, how_to_continue, next_steps
from ringside.records.metrics import MetricsLog
from ringside.run import planning, training
from ringside.run.config_file import starting_point
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.files.lock import locked
from shared.memory.plan import Plan
from shared.process.ownership import LOCK_FILE, SUITE_LOCK_FILE
from tests.conftest import Refused
from tests.exact.conftest import stop_at
from tests.support.checkpoints import ACTIONS, CONFIG, SIZES, rewrite, write_run
from tests.support.configurations import settled
from tests.support.runs import begun, child, finish, records, start, summary, wait_until

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


OTHER_SETTINGS = [
    ("--epsilon-end=0.2", "--epsilon-end 0.1 (now 0.2)"),
    ("--envs=16", "--envs 8 (now 16)"),
    ("--total-steps=1_440", "has already played 2_400 steps"),
]


@pytest.mark.parametrize(("change", "says"), OTHER_SETTINGS)
def test_a_resume_with_other_settings_is_refused(refused: Refused, five_rounds: Path, change: str, says: str) -> None:
    assert says in refused("--resume", str(five_rounds), change)


def files_of(run_dir: Path) -> dict[Path, tuple[bytes, int]]:
    """Content and moment of all files."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run_dir.rglob("*") if path.is_file()}


def test_a_finished_run_is_not_resumed_and_nothing_of_it_is_touched(refused: Refused, run_dir: Path) -> None:
    (run_dir / "evaluation-final.json").write_text('{"version": 5, "mean": 1.0}')
    before = files_of(run_dir)
    sentence = refused("--resume", str(run_dir))
    assert f"--resume {run_dir} is a finished run, of 2_400 steps; pass --total-steps N" in sentence
    assert "is a finished run" in refused("--resume", str(run_dir), "--total-steps", "2_390"), "the same last round"
    assert "is a finished run" in refused("--resume", str(run_dir), "--run-dir", "elsewhere")
    with pytest.raises(ringside.ConfigError, match="is a finished run"):
        ringside.train(resume=run_dir)
    assert files_of(run_dir) == before

    ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_401))
    (run_dir / "summary.json").unlink()  # killed before it was written: a resume writes it
    ringside.plan(ringside.starting_point(None, run_dir))


def test_a_run_whose_last_evaluation_is_missing_is_resumed(run_dir: Path) -> None:
    change_config(run_dir, "evaluate", eval_every_steps=1_200)
    with closing(MetricsLog(run_dir / "metrics.jsonl")) as log:
        log.log_evaluation(0, 3, 1_440, {"mean_return": 1.0})
        ringside.plan(ringside.starting_point(None, run_dir))
        log.log_evaluation(1, 5, 2_400, {"mean_return": 1.0})
    with pytest.raises(ringside.ConfigError, match="is a finished run"):
        ringside.plan(ringside.starting_point(None, run_dir))


def test_a_plan_does_not_run_where_another_run_has_been_since(run_dir: Path) -> None:
    """As a plan that is run twice, or a command that is repeated while the first run saves."""
    before = files_of(run_dir)
    with pytest.raises(ConfigError, match="already holds a run"):
        training.run_plan(Plan(settled(run_dir=run_dir, network="small", envs=4), 4), print, print)
    assert files_of(run_dir) | {run_dir / LOCK_FILE: before[run_dir / LOCK_FILE]} == before


def test_a_resume_is_checked_again_once_the_directory_is_locked(run_dir: Path) -> None:
    """Meanwhile another run may have ended in it, or have taken the checkpoint away."""
    ready = ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_880))
    with training._owned(ready) as checkpoint:
        assert checkpoint.path == run_dir / "checkpoints" / "checkpoint-00000005.json"
    finished = replace(ready, config=ready.config.with_settings(total_steps=2_400))
    with pytest.raises(ConfigError, match="is a finished run"), training._owned(finished):
        pass
    checkpoint.path.unlink()
    with pytest.raises(ConfigError, match="cannot be continued"), training._owned(ready):
        pass


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_resume_keeps_where_the_weights_began(run_dir: Path, tmp_path: Path, *, elsewhere: bool) -> None:
    config = run_dir / "config.json"
    config.write_text(config.read_text().replace('"init_from": null', '"init_from": "w"'))
    goes_on = tmp_path / "elsewhere" if elsewhere else run_dir
    ready = ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_880, run_dir=goes_on))
    with training._owned(ready):
        assert json.loads((goes_on / "config.json").read_text())["run"]["init_from"] == "w"
    assert ready.config.run.init_from is None


@pytest.mark.parametrize("tracked", [True, False])
def test_a_resume_without_its_tracking_says_so(run_dir: Path, monkeypatch: pytest.MonkeyPatch, tracked: bool) -> None:
    change_config(run_dir, "run", track="wandb" if tracked else "off")
    monkeypatch.setattr(training, "Supervisor", Mock())
    notes: list[str] = []
    ready = ringside.plan(ringside.starting_point(None, run_dir).with_settings(total_steps=2_880))
    training.run_plan(ready, print, notes.append)
    said = [note for note in notes if "Weights & Biases" in note]
    sentence = "This run was sent to Weights & Biases before; pass --track wandb to send the rest, too."
    assert said == ([sentence] if tracked else [])


BEGINNINGS = [
    ({"envs": 10, "lane_envs": 2, "round_steps": 100}, 0, "Learning begins in fp32 at step 50,000."),
    ({}, 5, "Learning begins in fp32 at step 59,904, with the first whole round after --learning-starts 50_000."),
    ({}, 6, None),
    ({"total_steps": 50_000}, 0, None),
]


@pytest.mark.parametrize(("settings", "boundary", "sentence"), BEGINNINGS)
def test_the_first_step_of_learning_is_said(settings: dict[str, int], boundary: int, sentence: str | None) -> None:
    ready = planning.check(Config().with_settings(device="cpu", precision="fp32", **settings))
    assert training.learning_begins_sentence(ready, boundary) == sentence


def test_the_commands_after_a_run_follow_from_its_files(tmp_path: Path) -> None:
    config = replace(CONFIG, run=replace(CONFIG.run, run_dir=tmp_path))
    begun_anew = "Nothing was saved: the run ended before its first checkpoint. The same command starts it again."
    assert how_to_continue(config) == begun_anew
    CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert how_to_continue(config) == begun_anew, "the directory alone is no checkpoint"
    write_run(tmp_path, 2)
    assert how_to_continue(config).startswith("Continue it with: ")
    assert how_to_continue(config).endswith(f"--resume {tmp_path}")
    for manifest in tmp_path.glob("checkpoints/checkpoint-*.json"):
        rewrite(manifest, has_replay=False)
    settings = "--envs 4 --total-steps 800 --round-steps 40 --replay-size 100 --learning-starts 40 --network small"
    assert how_to_continue(config).endswith(f" --init-from {tmp_path} {settings}")
    for manifest in tmp_path.glob("checkpoints/checkpoint-*.json"):
        manifest.write_text("{}")
    assert how_to_continue(config).startswith("It cannot be resumed: No checkpoint in")


def test_the_commands_that_come_next_are_those_that_work(tmp_path: Path) -> None:
    config = replace(CONFIG, run=replace(CONFIG.run, run_dir=tmp_path))
    assert next_steps(config, finished=False) == [how_to_continue(config)]
    write_run(tmp_path, 2)
    stopped, finished = (next_steps(config, finished=each) for each in (False, True))
    assert stopped == [*finished, how_to_continue(config)]
    assert [line.split(":")[0].strip() for line in finished] == ["Evaluate it", "Watch it play", "See its curves"]
    assert finished[0].endswith(f" eval --load {tmp_path}")
    assert next_steps(config, finished=False, at_score=True)[-1] == f"{stopped[-1]} --stop-at unset"
    mine = replace(config, play=replace(config.play, env="mine:factory"))
    assert all("--env mine:factory" in line or "report" in line for line in next_steps(mine, finished=True))


def write_newest_start(run_dir: Path, **settings: object) -> None:
    """As a start whose launcher was killed before its first checkpoint leaves it."""
    (run_dir / "config.json").write_text(json.dumps(CONFIG.with_settings(**settings).to_json()))


def test_a_resume_keeps_the_values_of_the_newest_start(tmp_path: Path) -> None:
    write_run(tmp_path, 2, CONFIG.with_settings(stop_at=12.0, actors=4))
    kept = starting_point(None, tmp_path)
    assert (kept.run.stop_at, kept.machine.actors) == (12.0, 4)
    write_newest_start(tmp_path, stop_at=18.0, actors=2, total_steps=1_200, track="wandb", plain=True, plugin="forged")
    for resume in (tmp_path, tmp_path / "checkpoints" / "checkpoint-00000001.json"):
        kept = starting_point(None, resume)
        assert (kept.run.stop_at, kept.machine.actors, kept.learn.total_steps) == (18.0, 2, 1_200)
        assert (kept.run.track, kept.run.plain, kept.run.plugin, kept.run.resume) == ("off", False, None, resume)
    assert configuration(["--resume", str(tmp_path), "--stop-at", "unset"]).run.stop_at is None


@pytest.mark.parametrize("content", ["{}", "[]", '{"run": 3}'])
def test_a_resume_takes_the_checkpoint_where_the_newest_start_is_damaged(tmp_path: Path, content: str) -> None:
    write_run(tmp_path, 2, CONFIG.with_settings(stop_at=12.0))
    write_newest_start(tmp_path, envs=8, stop_at=18.0)
    assert starting_point(None, tmp_path).run.stop_at == 12.0, "it is another run's"
    (tmp_path / "config.json").write_text(content)
    assert starting_point(None, tmp_path).run.stop_at == 12.0


def test_a_run_that_goes_on_is_not_resumed_before_its_first_checkpoint_either(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    write_newest_start(tmp_path)
    with pytest.raises(ConfigError, match=r"There is no checkpoint in .*: name another run\."):
        starting_point(None, tmp_path)
    goes_on = rf"--resume {tmp_path} belongs to a run that is still going on, or saving\."
    with locked(tmp_path / LOCK_FILE, "--run-dir", "a run"), pytest.raises(ConfigError, match=goes_on):
        starting_point(None, tmp_path)


def test_a_run_of_a_suite_names_no_commands(tmp_path: Path) -> None:
    config = replace(CONFIG, run=replace(CONFIG.run, run_dir=tmp_path / "pong-1"))
    write_run(tmp_path / "pong-1", 2)
    with locked(tmp_path / SUITE_LOCK_FILE, "--out", "a test"):
        assert next_steps(config, finished=True) == next_steps(config, finished=False) == []
    assert len(next_steps(config, finished=True)) == 3


@pytest.mark.stress
def test_a_run_that_is_stopped_before_its_first_checkpoint_says_that_nothing_was_saved(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    wait_until(process, lambda: child(process, "actor 0") is not None)  # which has not come that far
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert "Stopping: there is nothing to save yet." in output
    assert "Nothing was saved: the run ended before its first checkpoint." in output
    assert "--resume" not in output


@pytest.mark.stress
def test_a_run_goes_on_with_another_arithmetic_and_says_so(tmp_path: Path) -> None:
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    process, memory = begun(run_dir, precision="fp32", eval_every_steps="480", eval_episodes="1")
    stop_at(process, memory, 3)
    first = summary(run_dir)
    assert (first["exact"], first["inexact_since_steps"]) == (True, None)
    assert first["checkpoint"]["at_steps"] == first["steps"]
    assert first["checkpoint"]["bytes"] == sum(piece.bytes for piece in find_checkpoint(run_dir).pieces)

    refused = finish(start(run_dir, "--resume", str(run_dir), batch_size="64", precision="bf16"), code=2)
    assert ("--batch-size 8 (now 64)" in refused, "--precision" in refused) == (True, False)

    output = finish(start(elsewhere, "--resume", str(run_dir), precision="bf16", inference_batch="8"))
    assert f"Since step {first['steps']:,} this run computes on another processor" in output
    last = summary(elsewhere)
    assert (last["exact"], last["inexact_since_steps"]) == (False, first["steps"])
    assert (last["rounds"], last["precision"]) == (10, "bf16")
    assert last["episodes"] >= first["episodes"]
    assert [record["round"] for record in records(elsewhere, "round")] == list(range(10))
    assert (elsewhere / "checkpoints" / "best.safetensors").exists(), "what was best came along"
    assert json.loads((elsewhere / "config.json").read_text())["machine"]["inference_batch"] == 8

    finish(start(elsewhere, "--resume", str(elsewhere), total_steps="5_280"))
    assert summary(elsewhere)["inexact_since_steps"] == first["steps"]
    assert find_checkpoint(elsewhere).refused == ()
