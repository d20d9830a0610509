"""Gradients without a lock: the run survives its processes, stops when it is told, and its checkpoints load."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.loading import load_boundary
from tests.support.runs import child, finish, gone, kill, memory_of, start, summary, wait_until
from tests.support.waiting import until

WORKERS = {
    "env": "tests.support.pixel_game:factory",
    "schedule": "async",
    "method": "a2c",
    "workers": "4",
    "lane_envs": "1",
    "optimizer": "rms",
    "optimizer_epsilon": "1e-3",
    "learning_rate": "1e-3",
    "snapshot_every_steps": "400",
}
STOP_SECONDS = 6.0
"""Longest time from Ctrl-C to the end of the workers, on a machine under load; half of it is promised."""


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_a_run_survives_kills_stops_when_told_and_continues(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir, total_steps="4_000", **WORKERS)
    memory = memory_of(process, run_dir, actions=3)
    board, shared = memory.board, memory.shared_parameters
    assert shared is not None
    for round_, role in ((1, "worker 1"), (2, "worker 0")):
        wait_until(process, lambda r=round_: board.committed >= r)
        kill(process, role)
    wait_until(process, lambda: board.committed >= 4)
    process.send_signal(signal.SIGINT)
    until(lambda: not any(child(process, f"worker {number}") for number in (0, 1)), STOP_SECONDS)
    finish(process)
    assert gone(process)
    last = summary(run_dir)
    assert (last["finished"], last["exact"], last["restarts"]) == (False, False, 2)
    checkpoint = find_checkpoint(run_dir)
    assert np.isfinite(load_boundary(checkpoint)["online"]).all()
    process = start(run_dir, "--resume", str(run_dir), env=WORKERS["env"], total_steps="2_800")
    finish(process)
    assert gone(process)
    last = summary(run_dir)
    assert (last["finished"], last["steps"], last["updates"]) == (True, 2_800, 560)


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_hundred_kills_lose_no_step(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir, total_steps="20_000", **WORKERS)
    memory = memory_of(process, run_dir, actions=3)
    for i in range(100):
        wait_until(process, lambda i=i: memory.board.lane_done.values.sum() >= 180 * i)
        kill(process, f"worker {i % 2}")
    finish(process, seconds=600.0)
    assert gone(process)
    last = summary(run_dir)
    assert (last["finished"], last["steps"], last["updates"], last["restarts"]) == (True, 20_000, 4_000, 100)
    assert np.isfinite(load_boundary(find_checkpoint(run_dir))["online"]).all()
