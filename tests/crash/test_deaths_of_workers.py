"""Runs of workers survive their processes, stop when they are told, and leave nothing but a checkpoint that loads."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from shared.memory.board import Phase
from tests.support.checkpoints import boundary_in
from tests.support.runs import begun, child, finish, kill, shared_names, start, summary, wait_until
from tests.support.waiting import until

WORKERS = {"env": "tests.support.pixel_game:factory", "schedule": "async", "method": "a2c", "workers": "4"}
WORKERS |= {"lane_envs": "1", "optimizer": "rms", "optimizer_epsilon": "1e-3", "learning_rate": "1e-3"}
WORKERS |= {"snapshot_every_steps": "400"}
pytestmark = pytest.mark.stress
SCHEDULES = pytest.mark.parametrize("schedule", ["async", "ordered"])


@pytest.mark.timeout(300)
@SCHEDULES
def test_a_run_survives_kills_stops_when_told_and_continues(run_dir: Path, schedule: str) -> None:
    process, memory = begun(run_dir, total_steps="4_000", **WORKERS | {"schedule": schedule}, actions=3)
    board, span = memory.board, memory.run_schedule.snapshot_rounds
    for number, role in ((1, "worker 1"), (2, "worker 0")):
        wait_until(process, lambda n=number: board.committed >= n * span)
        kill(process, role)
    wait_until(process, lambda: board.committed >= 4 * span)
    process.send_signal(signal.SIGINT)
    until(lambda: not any(child(process, f"worker {number}") for number in (0, 1)), every=0.05)
    finish(process)
    last = summary(run_dir)
    assert (last["finished"], last["exact"], last["restarts"]) == (False, schedule == "ordered", 2)
    assert np.isfinite(boundary_in(run_dir)["online"]).all()
    finish(start(run_dir, "--resume", str(run_dir), env=WORKERS["env"], total_steps="2_800"))
    last = summary(run_dir)
    assert (last["finished"], last["steps"], last["updates"], last["workers"]) == (True, 2_800, 560, 4)


@pytest.mark.timeout(900)
def test_a_hundred_kills_lose_no_step_and_leave_nothing(run_dir: Path) -> None:
    """Ten times a process at work, or both, and then those that start, until there were ten."""
    names = shared_names()
    process, memory = begun(run_dir, total_steps="30_000", **WORKERS, actions=3)
    board = memory.board
    workers = memory.plan.processes.slice_of(memory.plan.player)

    def at_work(steps: int) -> bool:
        return bool((board.phase[workers] == Phase.WORKING).all() and board.lane_done.values.sum() >= steps)

    wait_until(process, lambda: at_work(400))
    descriptors = os.listdir(f"/proc/{process.pid}/fd")
    for i in range(10):
        wait_until(process, lambda i=i: at_work(400 + 1_800 * i))
        for number in (i % 2, (i // 2) % 2, *(0, 1) * 4):
            before = board.restarts.sum()
            kill(process, f"worker {number}")
            wait_until(process, lambda before=before: board.restarts.sum() > before)
    wait_until(process, lambda: at_work(18_500))
    assert len(os.listdir(f"/proc/{process.pid}/fd")) == len(descriptors)
    finish(process, seconds=600.0)
    assert shared_names() <= names
    last = summary(run_dir)
    assert (last["finished"], last["steps"], last["updates"], last["restarts"]) == (True, 30_000, 6_000, 100)
    assert np.isfinite(boundary_in(run_dir)["online"]).all()


@SCHEDULES
def test_a_learning_rate_that_is_too_large_ends_the_run_and_is_not_saved(run_dir: Path, schedule: str) -> None:
    flags = WORKERS | {"schedule": schedule, "learning_rate": "1e30"}
    output = finish(start(run_dir, actors="2", **flags), code=1)
    assert ("smaller --learning-rate may help" in output, "Traceback" in output) == (True, False), output
    assert summary(run_dir)["restarts"] == 0
    assert np.isfinite(boundary_in(run_dir)["online"]).all()
