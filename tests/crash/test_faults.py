"""Faults of the GPU and of numbers: what is tried, what is said, what is kept."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from learner.engine.faults import device_faults_named
from shared.checkpoint.finding import find_checkpoint
from shared.errors import ConfigError, DeviceFault
from tests.crash.failing_device import faults
from tests.crash.storm import FLAGS, Undisturbed, result_of
from tests.support.checkpoints import boundary_in
from tests.support.runs import begun, finish, gone, kill, memory_of, start, summary, wait_until

FAILING = ("-m", "tests.crash.failing_device")


@pytest.mark.parametrize("fault", ["memory", "access", "lost", "library", "host memory", "lazy call", "nccl"])
def test_faults_of_the_gpu_are_told_from_those_of_the_program(fault: str) -> None:
    error = faults()[fault]
    with pytest.raises(DeviceFault, match=re.escape(str(error).splitlines()[0])) as caught, device_faults_named():
        raise error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mistake", ["program", "capture", "peer", "assert", "capturing"])
def test_mistakes_of_the_program_are_no_faults_of_the_gpu(mistake: str) -> None:
    error = faults()[mistake]
    with pytest.raises(RuntimeError) as caught, device_faults_named():
        raise error
    assert caught.value is error


def test_a_torch_without_kernels_for_the_gpu_is_no_fault_of_it() -> None:
    sentence = r"no kernels for this GPU\. Install .* or pass --device cpu\.$"
    with pytest.raises(ConfigError, match=sentence), device_faults_named():
        raise faults()["kernels"]


def test_a_fault_of_the_gpu_is_answered_by_one_restart_and_then_by_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", "learner memory always")
    process = start(tmp_path / "run", program=FAILING, **FLAGS)
    output = finish(process, code=1)
    assert output.count("it starts again from its snapshot") == 1
    assert "learner met a fault of the GPU, 2 times in a row without progress" in output
    assert "The GPU is out of memory: CUDA out of memory. Tried to allocate 20.00 MiB. A smaller replay" in output
    assert "--replay-on host keeps a replay buffer in main memory" in output
    assert "Traceback" not in output
    assert "OutOfMemoryError" in (tmp_path / "run" / "logs" / "learner.log").read_text()
    assert boundary_in(tmp_path / "run")
    assert gone(process)


@pytest.mark.stress
def test_an_actor_is_found_dead_though_what_it_started_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ghosts = tmp_path / "ghosts"
    monkeypatch.setenv("GHOSTS", str(ghosts))
    process = start(tmp_path / "run", env="tests.crash.failing:haunted", total_steps="2_400")
    try:
        memory = memory_of(process, tmp_path / "run", actions=3)
        wait_until(process, lambda: memory.board.committed >= 1)
        kill(process, "actor 0")
        process.wait(100)
    finally:
        for ghost in ghosts.read_text().split():
            os.kill(int(ghost), signal.SIGKILL)
    output = finish(process)  # which ghosts keep from being over
    assert output.count("actor 0 was killed by SIGKILL") == 1
    assert summary(tmp_path / "run")["restarts"] == 1


@pytest.mark.stress
@pytest.mark.parametrize("role", ["learner", "inference"])
@pytest.mark.parametrize("fault", ["memory", "access", "lost", "library"])
def test_a_fault_of_the_gpu_that_does_not_come_again_changes_nothing(
    undisturbed: Undisturbed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    fault: str,
) -> None:
    monkeypatch.setenv("FAULT", f"{role} {fault} once")
    output = finish(start(tmp_path / "run", program=FAILING, **FLAGS))
    assert f"{role} met a fault of the GPU; it starts again" in output
    assert summary(tmp_path / "run")["restarts"] == 1
    assert result_of(tmp_path / "run") == undisturbed("4_800")[0]


def test_a_batch_that_poisons_the_learner_is_written_down(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process, memory = begun(run_dir, env="tests.support.pixel_game:factory", total_steps="1_000_000", actions=3)
    wait_until(process, lambda: memory.board.committed >= 2)
    memory.ring.field["raw_reward"][:] = np.nan  # as memory that fails would
    output = finish(process, code=1)
    (path,) = run_dir.glob("nan-report-*.json")
    assert f"{path} says which update did it" in output
    assert gone(process)
    told = json.loads(path.read_text())
    assert told["found_again"]
    assert told["sums"]["loss"] == "nan"
    assert told["learning_rate"] > 0
    assert len(told["config_digest"]) == 64
    arrays = load_file(path.with_suffix(".safetensors"))
    poisoned = np.isnan(arrays["reward"])
    assert poisoned.any()
    assert told["not_finite"]["reward"] == poisoned.sum()
    assert np.array_equal(np.isnan(arrays["target_value"]), poisoned)
    assert np.isfinite(arrays["parameters_before"]).all()
    assert np.isnan(arrays["gradient"]).any()
    assert arrays["frames"].shape == (len(poisoned), 5, 84, 84)
    assert set(np.unique(arrays["frames"])) == {0, 255}  # block and paddle, white on black
    kept = boundary_in(run_dir)
    assert told["last_good_boundary"] == find_checkpoint(run_dir).boundary
    assert np.isfinite(kept["online"]).all()


@pytest.mark.stress
def test_rewards_that_are_not_finite_end_the_run_and_no_such_priority_is_saved(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ("--prioritized", "--method", "c51")
    process, memory = begun(run_dir, *words, env="tests.support.pixel_game:factory", total_steps="1_000_000", actions=3)
    wait_until(process, lambda: memory.board.committed >= 4)
    memory.ring.field["raw_reward"][:] = np.nan
    output = finish(process, code=1)
    assert "ceased to be finite" in output
    assert gone(process)
    kept = boundary_in(run_dir)
    assert np.isfinite(kept["priorities"]).all()
    assert kept["priorities"].max() > 0
    assert np.isfinite(kept["online"]).all()


@pytest.mark.stress
def test_a_learning_rate_that_poisons_the_learner_is_written_down(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir, optimizer="adam", learning_rate="1e30", precision="fp32")
    output = finish(process, code=1)
    assert "ceased to be finite" in output
    assert "--learning-rate" in output
    assert "Traceback" not in output
    last = summary(run_dir)
    assert last["restarts"] == 0
    assert last["updates"] == 0  # the boundary before the first update is what was kept
    (path,) = run_dir.glob("nan-report-*.json")
    told = json.loads(path.read_text())
    assert (told["not_finite"]["reward"], told["not_finite"]["parameters_before"]) == (0, 0)
    assert told["not_finite"]["parameters_after"] > 0 or told["not_finite"]["gradient"] > 0
    assert gone(process)
