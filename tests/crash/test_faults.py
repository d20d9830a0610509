"""Faults of the GPU and of numbers: what is tried, what is said, what is kept."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.distributed import DistBackendError

from learner.engine.faults import device_faults_named
from shared.checkpoint.finding import find_checkpoint
from shared.errors import ConfigError, DeviceFault
from tests.support.checkpoints import boundary_in
from tests.support.runs import begun, finish, kill, start, summary

LAZY = "CUDA call failed lazily at initialization with error: CUDA error: unknown error\n\nCUDA call was"
ADVICE = "CUDA kernel errors might be\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
"""The end of every CUDA error."""
NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:328, "
ERRORS: dict[str, Exception] = {
    "memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has a capacity of"),
    "access": torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered\n{ADVICE}"),
    "lost": RuntimeError("No CUDA GPUs are available"),
    "sick": RuntimeError("CUDA driver initialization failed, you might not have a CUDA gpu."),
    "cuDNN": RuntimeError("FIND was unable to find an engine to execute this computation"),
    "library": RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    "host memory": torch.AcceleratorError(f"CUDA error: out of memory\n{ADVICE}"),
    "lazy call": torch.cuda.DeferredCudaCallError(LAZY),
    "nccl": DistBackendError(
        f"{NCCL}unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
    ),
    "peer": DistBackendError(
        f"{NCCL}remote process exited or there was a network error, NCCL version 2.27.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    ),
    "kernels": torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device\nCompile"),
    "assert": torch.AcceleratorError(f"CUDA error: device-side assert triggered\n{ADVICE}"),
    "capturing": torch.AcceleratorError(f"CUDA error: operation not permitted when stream is capturing\n{ADVICE}"),
    "program": RuntimeError("shape '[4, 4]' is invalid for input of size 3"),
    "capture": RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless"),
}
"""Errors that PyTorch raises, by name."""


MISTAKES = ("program", "capture", "peer", "assert", "capturing")


@pytest.mark.parametrize("name", sorted(ERRORS.keys() - {"kernels"}))
def test_faults_of_the_gpu_are_told_from_mistakes_of_the_program(name: str) -> None:
    error = ERRORS[name]
    kind = type(error) if name in MISTAKES else DeviceFault
    with pytest.raises(kind, match=re.escape(str(error).splitlines()[0])) as caught, device_faults_named():
        raise error
    assert caught.value is error if name in MISTAKES else "\n" not in str(caught.value)


def test_a_torch_without_kernels_for_the_gpu_is_no_fault_of_it() -> None:
    sentence = r"no kernels for this GPU\. Install .* or pass --device cpu\.$"
    with pytest.raises(ConfigError, match=sentence), device_faults_named():
        raise ERRORS["kernels"]


@pytest.mark.stress
def test_an_actor_is_found_dead_though_what_it_started_lives(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ghosts = run_dir.with_name("ghosts")
    monkeypatch.setenv("GHOSTS", str(ghosts))
    ghosts.touch()
    try:
        process, _ = begun(run_dir, env="tests.crash.failing:haunted", total_steps="2_400", actions=3, committed=1)
        kill(process, "actor 0")
        process.wait(100)
    finally:
        for ghost in ghosts.read_text().split():
            os.kill(int(ghost), signal.SIGKILL)
    output = finish(process)  # which ghosts keep from being over
    assert output.count("actor 0 was killed by SIGKILL") == 1
    assert summary(run_dir)["restarts"] == 1


ENDLESS_CATCH = {"env": "tests.support.pixel_game:factory", "total_steps": "1_000_000"}


def test_a_batch_that_poisons_the_learner_is_written_down(run_dir: Path) -> None:
    process, memory = begun(run_dir, **ENDLESS_CATCH, actions=3, committed=2)
    memory.ring.field["raw_reward"][:] = np.nan  # as memory that fails would
    output = finish(process, code=1)
    (path,) = run_dir.glob("nan-report-*.json")
    assert f"{path} says which update did it" in output
    told = json.loads(path.read_text())
    assert (told["found_again"], told["sums"]["loss"], len(told["config_digest"])) == (True, "nan", 64)
    assert told["learning_rate"] > 0
    arrays = load_file(path.with_suffix(".safetensors"))
    poisoned = np.isnan(arrays["reward"])
    assert poisoned.any()
    assert told["not_finite"]["reward"] == poisoned.sum()
    assert np.array_equal(np.isnan(arrays["target_value"]), poisoned)
    assert np.isfinite(arrays["parameters_before"]).all()
    assert np.isnan(arrays["gradient"]).any()
    assert arrays["frames"].shape == (len(poisoned), 5, 84, 84)
    assert set(np.unique(arrays["frames"])) == {0, 255}  # block and paddle, white on black
    assert told["last_good_boundary"] == find_checkpoint(run_dir).boundary
    assert np.isfinite(boundary_in(run_dir)["online"]).all()


@pytest.mark.stress
def test_rewards_that_are_not_finite_end_the_run_and_no_such_priority_is_saved(run_dir: Path) -> None:
    process, memory = begun(run_dir, "--prioritized", method="c51", **ENDLESS_CATCH, actions=3, committed=4)
    memory.ring.field["raw_reward"][:] = np.nan
    assert "ceased to be finite" in finish(process, code=1)
    kept = boundary_in(run_dir)
    assert all(np.isfinite(kept[name]).all() for name in ("priorities", "online"))
    assert kept["priorities"].max() > 0


@pytest.mark.stress
def test_a_learning_rate_that_poisons_the_learner_is_written_down(run_dir: Path) -> None:
    output = finish(start(run_dir, optimizer="adam", learning_rate="1e30", precision="fp32"), code=1)
    words = ("ceased to be finite", "--learning-rate", "Traceback")
    assert [word in output for word in words] == [True, True, False], output
    last = summary(run_dir)
    assert (last["restarts"], last["updates"]) == (0, 0), "the boundary before the first update is what was kept"
    (path,) = run_dir.glob("nan-report-*.json")
    told = json.loads(path.read_text())
    assert (told["not_finite"]["reward"], told["not_finite"]["parameters_before"]) == (0, 0)
    assert told["not_finite"]["parameters_after"] > 0 or told["not_finite"]["gradient"] > 0
