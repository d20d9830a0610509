"""The state of a run at a boundary: what a memory that is restored holds for the round that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared.config.settings import STACK, Config
from shared.memory.boundary import Moved, capture, expected, restore
from shared.memory.run_memory import Memory, Plan

BOUNDARY = 6


def _memory(method: str, schedule: str) -> Memory:
    """Memory of a run with rounds of 5 ticks of four envs and a snapshot every two rounds."""
    settings: dict[str, Any] = {"method": method, "schedule": schedule, "round_steps": 20, "batch_size": 20}
    settings |= {"envs": 4, "lane_envs": 2, "network": "small", "snapshot_every_steps": 40, "total_steps": 800}
    if method == "dqn":
        settings |= {"learning_starts": 20, "replay_size": 100, "train_every": 20}
    machine = {"actors": 1, "inference_batch": 4, "device": "cpu", "eval_episodes": 1}
    return Memory.create(Plan(Config().with_settings(**settings, **machine), 4))


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
    shapes = expected(played)
    assert {name: (arrays[name].dtype.str, arrays[name].shape) for name in shapes} == shapes
    restore(restored, BOUNDARY, arrays)
    run_schedule = played.run_schedule
    opening = BOUNDARY * run_schedule.round_ticks
    kept = range(opening - (STACK - 1 if method == "a2c" else 0), opening + 1)
    for tick in range(opening - STACK, opening + 2):
        slot = tick % run_schedule.capacity
        for name in ("frame", "start"):
            found, written = restored.ring.field[name][:, slot], played.ring.field[name][:, slot]
            assert np.array_equal(found, written if tick in kept else np.zeros_like(written)), (tick, name)
    assert restored.board.committed == BOUNDARY
    assert restored.lane_snapshots.read(1, BOUNDARY) == b"lane 1"


def test_a_boundary_whose_snapshots_are_gone_is_not_captured() -> None:
    memory = _played(_memory("a2c", "concurrent"))
    with pytest.raises(Moved, match="boundary 4 are gone"):
        capture(memory, 4)
