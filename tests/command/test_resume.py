"""Continuing a run: what to type after it stopped, and what another arithmetic changes."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.command.train import configuration, how_to_continue, next_steps
from ringside.run.config_file import starting_point
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.errors import ConfigError
from shared.files.lock import locked
from shared.process.ownership import LOCK_FILE, SUITE_LOCK_FILE
from tests.support.checkpoints import ACTIONS, CONFIG, SIZES, rewrite, write_run
from tests.support.runs import finish, memory_of, records, start, summary, wait_until


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
    assert stopped[-1] == how_to_continue(config)
    assert [line.split(":")[0].strip() for line in finished] == [
        "Evaluate it",
        "Watch it play",
        "See its curves",
        "Train on",
    ]
    assert finished[0].endswith(f" eval --load {tmp_path}")
    assert finished[-1].endswith(f" --resume {tmp_path} --total-steps {2 * config.learn.total_steps:_}")
    over = replace(config, learn=replace(config.learn, learning_rate_end=0.0, anneal_steps=config.learn.total_steps))
    assert next_steps(over, finished=True) == finished[:-1], "more steps would learn nothing"
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
    with pytest.raises(ConfigError, match=r"There is no checkpoint in .*: its run has made none\. Name another\."):
        starting_point(None, tmp_path)
    goes_on = rf"--resume {tmp_path} belongs to a run that is still going on, or saving\."
    with locked(tmp_path / LOCK_FILE, "--run-dir", "a run"), pytest.raises(ConfigError, match=goes_on):
        starting_point(None, tmp_path)


def test_a_run_of_a_suite_names_no_commands(tmp_path: Path) -> None:
    config = replace(CONFIG, run=replace(CONFIG.run, run_dir=tmp_path / "pong-1"))
    write_run(tmp_path / "pong-1", 2)
    with locked(tmp_path / SUITE_LOCK_FILE, "--out", "a test"):
        assert next_steps(config, finished=True) == next_steps(config, finished=False) == []
    assert len(next_steps(config, finished=True)) == 4


@pytest.mark.stress
def test_a_run_that_is_stopped_before_its_first_checkpoint_says_that_nothing_was_saved(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    memory_of(process, tmp_path / "run")  # no role has come that far
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert "Stopping: there is nothing to save yet." in output
    assert "Nothing was saved: the run ended before its first checkpoint." in output
    assert "--resume" not in output


@pytest.mark.stress
def test_a_run_goes_on_with_another_arithmetic_and_says_so(tmp_path: Path) -> None:
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    process = start(run_dir, precision="fp32", eval_every_steps="480", eval_episodes="1")
    memory = memory_of(process, run_dir)
    wait_until(process, lambda: memory.board.committed >= 3)
    process.send_signal(signal.SIGTERM)
    finish(process)
    first = summary(run_dir)
    assert (first["exact"], first["inexact_since_steps"]) == (True, None)
    assert first["checkpoint"]["at_steps"] == first["steps"]
    assert first["checkpoint"]["bytes"] == sum(piece.bytes for piece in find_checkpoint(run_dir).pieces.values())

    refused = finish(start(run_dir, "--resume", str(run_dir), batch_size="64", precision="bf16"), code=2)
    assert "--batch-size 8 (now 64)" in refused
    assert "--precision" not in refused

    output = finish(start(elsewhere, "--resume", str(run_dir), precision="bf16", inference_batch="8"))
    assert f"Since step {first['steps']:,} this run computes on another device" in output
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
