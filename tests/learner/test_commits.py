"""Parts of a commit: the wait for all lanes, and evaluations that a repeated commit does not queue again."""

import time
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from learner.commits import Commits
from shared.memory.board import Stop
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from tests.support.configurations import settled
from tests.support.fake_doorbells import fake_doorbells

ROUND_STEPS = 40


@pytest.fixture
def memory() -> Memory:
    """Two lanes, and an evaluation after every second round."""
    sizes = {"envs": 4, "lane_envs": 2, "round_steps": ROUND_STEPS, "total_steps": 400, "replay_size": 400}
    evaluate = {"eval_every_steps": 2 * ROUND_STEPS, "eval_episodes": 1, "eval_envs": 1}
    return Memory.create(Plan(settled(network="small", actors=1, **sizes, **evaluate), 4))


def commits_of(memory: Memory, *bells: Any) -> tuple[Commits, list[bool]]:
    """Commits with the doorbells of scribe and others, and the answers of all conditions that were waited for."""
    answers: list[bool] = []
    waiter = Mock(process=memory.plan.committer, wait=lambda until: answers.append(until()) or 0)
    return Commits(memory, waiter, fake_doorbells(*bells)), answers


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
    assert (written, queue.queued.read()) == ([2, 4], 2)
    assert (queue.step[:2].tolist(), queue.data[:2, 0].tolist()) == ([80, 160], [2.0, 4.0])
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
    bells = [Mock(ring=lambda number=number: rung.append(number)) for number in range(4)]
    commits, _ = commits_of(memory, bells[3], bells[:3])
    names, before = memory.run_schedule.method.metrics, time.monotonic()
    commits.record(1, lambda: (7, dict.fromkeys(names, 2.0)))
    *means, updates, at, boundary = memory.board.metrics[0].tolist()
    assert (means, updates, boundary) == ([2.0] * len(names), 7.0, 1.0)
    assert before <= at <= time.monotonic()
    commits.publish(1)
    assert (rung, memory.board.committed) == ([0, 1, 2, 3], 1)


def test_a_record_is_noted_once_however_often_its_commit_is_begun(memory: Memory) -> None:
    """A learner that was killed before the commit has the same means, and must not move the moment."""
    commits, _ = commits_of(memory)
    names, taken = memory.run_schedule.method.metrics, list[int]()
    for value in (2.0, 3.0):
        commits.record(1, lambda value=value: (taken.append(1) or 7, dict.fromkeys(names, value)))  # type: ignore[misc]
    assert memory.board.metrics[0, : len(names)].tolist() == [2.0] * len(names)
    assert len(taken) == 2, "the next record begins with no round of this one"


def test_the_scribe_is_woken_where_a_record_ends(memory: Memory) -> None:
    rung = list[int]()
    memory.board.run_schedule = replace(memory.run_schedule, record_rounds=3)
    memory.board.last.publish(8)
    commits, _ = commits_of(memory, Mock(ring=lambda: rung.append(memory.board.committed)))
    for boundary in range(1, 9):
        commits.publish(boundary)
    assert rung == [3, 6, 8]


@pytest.mark.parametrize(("schedule", "last"), [("concurrent", 4), ("alternate", 4), ("free", 5)])
def test_the_last_boundary_is_the_first_that_no_lane_can_have_passed(memory: Memory, schedule: str, last: int) -> None:
    memory = Memory.create(Plan(memory.plan.config.with_settings(schedule=schedule), 4))
    commits, answers = commits_of(memory)
    memory.board.commits.publish(3)
    commits.name_last(4)
    assert memory.board.last.read() == memory.run_schedule.rounds, "nobody has asked for a stop"
    memory.board.stop[0] = Stop.FINISH
    for boundary in range(4, last + 1):
        commits.name_last(boundary)
        assert memory.board.last.read() == last, "it is named once"
    assert answers == [False], "the snapshots of the lanes are missing there"
    for lane in range(memory.run_schedule.lanes):
        memory.lane_snapshots.write(lane, last, b"state")
    commits.name_last(last)
    assert answers == [False, True]
    commits.publish(last)
    assert (memory.board.finished, memory.board.complete) == (True, False)


def test_a_version_is_there_before_it_is_queued(memory: Memory) -> None:
    commits: Any = commits_of(memory)[0]
    queue, seen = memory.evaluations, list[Any]()
    queue.queued = Mock(read=queue.queued.read)
    queue.queued.publish = lambda number: seen.append((number, queue.data[0, 0].item(), queue.step[0].item()))
    commits.queue_evaluation(2, lambda place: place.fill(0.5))
    assert seen == [(1, 0.5, 80)]
