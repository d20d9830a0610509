"""A run that is resumed with another arithmetic goes on, and says that it is not the same to the last bit."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from shared.manifest import find_checkpoint
from tests.runs import finish, memory_of, records, start, summary, wait_until


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
