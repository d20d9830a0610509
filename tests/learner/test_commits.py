"""Parts of a commit: the wait for all lanes, and evaluations that a repeated commit does not queue again."""

from __future__ import annotations

import time
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


def test_a_commit_is_noted_with_its_moment_and_wakes_those_who_wait(memory: Memory) -> None:
    rung = list[int]()
    bells: Any = [SimpleNamespace(ring=lambda number=number: rung.append(number)) for number in range(3)]
    commits = Commits(memory, SimpleNamespace(process=memory.plan.committer), bells)  # type: ignore[arg-type]
    names, before = memory.run_schedule.method.metrics, time.monotonic()
    commits.snapshot(1, lambda: (7, dict.fromkeys(names, 2.0)), lambda out: None)
    *means, updates, at = memory.board.metrics[0].tolist()
    assert (means, updates) == ([2.0] * len(names), 7.0)
    assert before <= at <= time.monotonic()
    commits.publish(1)
    assert (rung, memory.board.committed) == ([0, 1, 2], 1)


def test_a_version_is_there_before_it_is_queued(memory: Memory) -> None:
    commits: Any = Commits(memory, SimpleNamespace(process=memory.plan.committer, wait=lambda until: until()), [])  # type: ignore[arg-type]
    queue, seen = memory.evaluations, list[Any]()
    queue.queued = SimpleNamespace(
        read=queue.queued.read,
        publish=lambda number: seen.append((number, queue.data[0, 0].item(), queue.step[0].item())),
    )
    commits.queue_evaluation(2, lambda place: place.fill(0.5))
    assert seen == [(1, 0.5, 80)]
