"""Parts of a commit: the wait for all lanes, and evaluations that a repeated commit does not queue again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learner.commits import Commits
from shared.config.settings import Config
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

ROUND_STEPS = 40


@pytest.fixture
def memory() -> Memory:
    """Two lanes, and an evaluation after every second round."""
    sizes = {"envs": 4, "lane_envs": 2, "round_steps": ROUND_STEPS, "total_steps": 400, "replay_size": 400}
    evaluate = {"eval_every_steps": 2 * ROUND_STEPS, "eval_episodes": 1, "eval_envs": 1}
    machine = {"network": "small", "actors": 1, "inference_batch": 4, "device": "cpu", "run_dir": Path()}
    return Memory.create(Plan(Config().with_settings(**(sizes | evaluate | machine)), 4))


def commits_of(memory: Memory) -> tuple[Commits, list[bool]]:
    """Commits, and the answers of all conditions that were waited for."""
    answers: list[bool] = []

    def wait(until: Any) -> int:
        answers.append(until())
        return 0

    waiter: Any = SimpleNamespace(process=memory.plan.committer, wait=wait)
    return Commits(memory, waiter, []), answers


def test_a_commit_waits_for_the_last_lane(memory: Memory) -> None:
    commits, answers = commits_of(memory)
    for lane in (0, 1):
        memory.board.lane_finished.publish(lane, 3)
        commits.wait_for_lanes(3)
    assert answers == [False, True]


def test_a_version_is_queued_once_however_often_its_commit_is_begun(memory: Memory) -> None:
    commits, answers = commits_of(memory)
    written: list[int] = []

    def write(place: NDArray[np.float32]) -> None:
        written.append(boundary)
        place[:] = boundary

    for boundary in (0, 1, 2, 2, 3, 4, 4, 4):
        commits.queue_evaluation(boundary, write)
    queue = memory.evaluations
    assert written == [2, 4]
    assert queue.queued.read() == 2
    assert queue.step[:2].tolist() == [2 * ROUND_STEPS, 4 * ROUND_STEPS]
    assert queue.data[:2, 0].tolist() == [2.0, 4.0]
    assert answers == [True, True]


def test_a_resume_with_another_interval_queues_no_evaluation_of_its_first_boundary(memory: Memory) -> None:
    """Its number would be given again after the next resume (`EvaluationHistory`)."""
    commits, _ = commits_of(memory)
    memory.board.evaluation_history[:] = (0, 2)
    for boundary, queued in ((2, 0), (3, 0), (4, 1)):
        commits.queue_evaluation(boundary, lambda place: None)
        assert memory.evaluations.queued.read() == queued
