"""State of a lane that a group needs to play it on: the newest snapshot, and the actions that were logged since.

The group plays logged actions again, as a restarted actor does, so a lane that was half played elsewhere continues with
the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RECURRENT_STATE
from shared.memory.parts.ring import slot_fields
from shared.memory.run_memory import Memory

OPENING = ("frame", "start", "valid")
"""Fields that a tick writes into the slot of the next one."""


class LaneState(NamedTuple):
    """One lane."""

    lane: int
    boundary: int
    """Boundary of the snapshot; -1: the lane was never opened."""
    snapshot: bytes
    opening: Mapping[str, NDArray[np.generic]]
    """Slots of the ticks that the first stack needs, the boundary's own tick last; with the state of an LSTM."""
    logged: int
    """Ticks whose actions are known."""
    actions: Mapping[str, NDArray[np.generic]]
    """Actions of the ticks from the boundary to `logged`, with the fields that the method declares."""


def capture_lane(memory: Memory, lane: int) -> LaneState:
    """State of a lane; for its owner."""
    run_schedule = memory.run_schedule
    boundary = memory.lane_snapshots.newest(lane)
    if boundary < 0:
        return LaneState(lane, -1, b"", {}, 0, {})
    snapshot = memory.lane_snapshots.read(lane, boundary)
    assert snapshot is not None, "a lane's snapshots have no other writer"
    tick = boundary * run_schedule.round_ticks
    logged = max(tick, int(memory.board.lane_logged.values[lane]))
    history = max(run_schedule.frames.stack - 1, run_schedule.history_ticks)
    opening, actions = np.arange(max(0, tick - history), tick + 1), np.arange(tick, logged)
    field = memory.ring.field
    names = ("action", *(name for name, _, _ in run_schedule.reply_fields))
    before = (*OPENING, RECURRENT_STATE) if run_schedule.recurrent_units else OPENING
    return LaneState(
        lane,
        boundary,
        snapshot,
        {name: field[name][lane][opening % run_schedule.capacity] for name in before},
        logged,
        {name: field[name][lane][actions % run_schedule.capacity] for name in names},
    )


def restore_lane(memory: Memory, state: LaneState) -> None:
    """Write the state into a group's region, before its processes start."""
    if state.boundary < 0:
        return
    run_schedule, board = memory.run_schedule, memory.board
    tick = state.boundary * run_schedule.round_ticks
    for name, slots in state.opening.items():
        ticks = np.arange(tick + 1 - len(slots), tick + 1)
        memory.ring.field[name][state.lane, ticks % run_schedule.capacity] = slots
    for name, slots in state.actions.items():
        memory.ring.field[name][state.lane, np.arange(tick, state.logged) % run_schedule.capacity] = slots
    memory.lane_snapshots.write(state.lane, state.boundary, state.snapshot)
    board.lane_logged.publish(state.lane, state.logged)
    board.lane_done.publish(state.lane, tick)
    board.lane_finished.publish(state.lane, state.boundary)


def result_fields(memory: Memory) -> list[str]:
    """Names of the fields that a tick writes into its own slot."""
    return [name for name, _, _ in slot_fields(memory.run_schedule) if name not in OPENING]
