"""The state of a run at a boundary: what a memory that is restored holds for the round that follows."""

from typing import Any

import numpy as np
import pytest

from shared.config.settings import Config
from shared.errors import CheckpointError
from shared.frame_shape import STACK
from shared.memory.boundary import Moved, capture, most_captured_bytes, restore
from shared.memory.evaluation_queue import EvaluationHistory
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

BOUNDARY = 6
NO_EVALUATIONS = EvaluationHistory(every=0)


def _memory(method: str, schedule: str, eval_every_steps: int = 0, *, recurrent: bool = False) -> Memory:
    """Memory of a run with rounds of 5 ticks of four envs and a snapshot every two rounds."""
    settings: dict[str, Any] = {"method": method, "schedule": schedule, "round_steps": 20, "batch_size": 20}
    settings |= {"envs": 4, "lane_envs": 2, "network": "small", "snapshot_every_steps": 40, "total_steps": 800}
    if method == "dqn":
        settings |= {"learning_starts": 20, "replay_size": 100, "train_every": 20}
    settings |= {"actors": 1, "inference_batch": 4, "device": "cpu", "eval_episodes": 1, "recurrent": recurrent}
    return Memory.create(Plan(Config().with_settings(**settings, eval_every_steps=eval_every_steps), 4))


def _played(memory: Memory) -> Memory:
    """The memory with noise in its rings, and with snapshots of `BOUNDARY`."""
    random = np.random.default_rng(1)
    for field in memory.ring.field.values():
        field[:] = random.integers(1, 200, field.shape).astype(field.dtype)
    for lane in range(memory.run_schedule.lanes):
        memory.lane_snapshots.write(lane, BOUNDARY, f"lane {lane}".encode())

    def fill(out: dict[str, np.ndarray]) -> None:
        for vector in out.values():
            vector[:] = random.random(vector.shape)

    memory.learner_snapshots.write(BOUNDARY, fill)
    memory.board.commits.publish(BOUNDARY)
    return memory


@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
@pytest.mark.parametrize("method", ["a2c", "dqn"])
def test_the_first_stacks_of_the_next_round_come_back(method: str, schedule: str) -> None:
    """With a replay method they come back with its segments, except for the frame that opens the round."""
    played, restored = _played(_memory(method, schedule)), _memory(method, schedule)
    arrays = capture(played, BOUNDARY)
    assert sum(array.nbytes for array in arrays.values()) <= most_captured_bytes(played, NO_EVALUATIONS)
    restore(restored, BOUNDARY, arrays, NO_EVALUATIONS)
    run_schedule = played.run_schedule
    opening = BOUNDARY * run_schedule.round_ticks
    kept = range(opening - (STACK - 1 if method == "a2c" else 0), opening + 1)
    for tick in range(opening - STACK, opening + 2):
        slot = tick % run_schedule.capacity
        for name in ("frame", "start"):
            found, written = restored.ring.field[name][:, slot], played.ring.field[name][:, slot]
            assert np.array_equal(found, written if tick in kept else np.zeros_like(written)), (tick, name)
    assert (restored.board.committed, restored.lane_snapshots.read(1, BOUNDARY)) == (BOUNDARY, b"lane 1")


@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_the_state_of_an_lstm_before_the_next_round_comes_back(schedule: str) -> None:
    played, restored = (_memory("a2c", schedule, recurrent=True) for _ in range(2))
    arrays = capture(_played(played), BOUNDARY)
    restore(restored, BOUNDARY, arrays, NO_EVALUATIONS)
    envs, tick = np.arange(4), np.full(4, BOUNDARY * played.run_schedule.round_ticks)
    for memory in (played, restored):
        memory.ring.field["start"][:] = 0
    states = [memory.ring.recurrent_state(envs, tick) for memory in (played, restored)]
    assert (states[0].shape, states[0].all()) == ((4, 2, 64), True)
    np.testing.assert_array_equal(states[0], states[1])
    arrays["history.recurrent_state"][0, 0, 0, 0, 0] = np.nan
    with pytest.raises(CheckpointError, match=r"'history\.recurrent_state' holds numbers that are not finite"):
        restore(restored, BOUNDARY, arrays, NO_EVALUATIONS)


def test_a_boundary_whose_snapshots_are_gone_is_not_captured() -> None:
    memory = _played(_memory("a2c", "concurrent"))
    with pytest.raises(Moved, match="boundary 4 are gone"):
        capture(memory, 4)


@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
@pytest.mark.parametrize("method", ["a2c", "dqn"])
def test_a_boundary_whose_frames_may_be_overwritten_is_not_captured(method: str, schedule: str) -> None:
    """The newest boundary with snapshots is, up to the commit of the next one."""
    memory = _played(_memory(method, schedule))
    for committed in range(BOUNDARY, BOUNDARY + memory.run_schedule.snapshot_rounds):
        memory.board.commits.publish(committed)
        capture(memory, BOUNDARY)
    first = BOUNDARY * memory.run_schedule.round_ticks - memory.run_schedule.history_ticks
    while memory.run_schedule.oldest_readable_tick(memory.board.committed) <= first:
        memory.board.commits.publish(memory.board.committed + 1)
    with pytest.raises(Moved, match="went beyond boundary 6"):
        capture(memory, BOUNDARY)


INTERVALS = [
    pytest.param(EvaluationHistory(20), 4, 20, 2, (0, 0), 10, id="the same"),
    pytest.param(EvaluationHistory(20), 4, 60, 2, (6, BOUNDARY), 7, id="rarer"),
    pytest.param(EvaluationHistory(60), 1, 20, 1, (2, BOUNDARY), 6, id="more frequent"),
    pytest.param(EvaluationHistory(20), 4, 0, 0, (4, BOUNDARY), 4, id="no more"),
    pytest.param(EvaluationHistory(0), 0, 20, 0, (0, BOUNDARY), 4, id="from here on"),
    pytest.param(EvaluationHistory(60, before=5, since=2), 5, 60, 2, (5, 2), 8, id="changed before"),
]


@pytest.mark.parametrize(("past", "written", "every", "waiting", "history", "due_later"), INTERVALS)
def test_evaluations_keep_their_numbers_when_their_interval_changes(
    past: EvaluationHistory, written: int, every: int, waiting: int, history: tuple[int, int], due_later: int
) -> None:
    """A round has 20 steps. Two versions were queued after the boundary, and those from `written` on have no record."""
    due = past.until(BOUNDARY, 20)
    played = _played(_memory("a2c", "concurrent", past.every))
    played.evaluations.queued.publish(due + 2 if past.every else due)
    played.evaluations.logged.publish(written)
    restored = _memory("a2c", "concurrent", every)
    restore(restored, BOUNDARY, capture(played, BOUNDARY), past)
    queue = restored.evaluations
    assert queue.queued.read() - queue.logged.read() == waiting
    assert tuple(restored.board.evaluation_history) == history
    assert EvaluationHistory(every, *history).until(10, 20) == due_later


def test_a_learner_that_overwrites_its_snapshot_during_the_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy may hold parts of two versions, while the slots of a large replay still are there."""
    memory = _played(_memory("dqn", "concurrent"))
    snapshots, read = memory.learner_snapshots, memory.learner_snapshots.read

    def overtaken(boundary: int) -> object:
        state = read(boundary)
        snapshots.number.publish(slice(None), -1)
        return state

    monkeypatch.setattr(snapshots, "read", overtaken)
    with pytest.raises(Moved, match="went beyond boundary 6"):
        capture(memory, BOUNDARY)
    memory.arena.close()


def test_an_evaluation_with_a_record_keeps_its_number_when_evaluations_end() -> None:
    """Its record may be newer than the checkpoint; the next evaluation, after another resume, has the next number."""
    played = _played(_memory("a2c", "concurrent", 20))
    played.evaluations.queued.publish(5)
    played.evaluations.logged.publish(4)
    for recorded in (4, 5, 9):
        restored = _memory("a2c", "concurrent", 0)
        restore(restored, BOUNDARY, capture(played, BOUNDARY), EvaluationHistory(20), recorded)
        queue = restored.evaluations
        assert queue.queued.read() == queue.done.read() == queue.logged.read() == min(recorded, 5)
