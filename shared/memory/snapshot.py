"""What lanes and learner need to do the current round again from its start.

Snapshot `b` (before round `b`) lies in buffer `(b / snapshot_rounds) % buffers`. Its number is taken away first and set
last, so a writer killed midway leaves no whole-looking half. There are two buffers; with the schedule `free` three for
lanes, which may have finished two rounds more than the last commit, whose snapshot must still be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RunSchedule
from shared.memory.arena import Arena
from shared.memory.layout import Field

SNAPSHOT_BYTES = 57_344
"""Most bytes of an env's own snapshot."""
ENV_BYTES = SNAPSHOT_BYTES + 64
"""With the lane's few words about it."""
LEARNER_BUFFERS = 2
PRIORITIES = "priorities"
"""With prioritized replay one vector more: every leaf of the tree, and the greatest priority so far."""


def state_lengths(run_schedule: RunSchedule, parameters: int) -> dict[str, int]:
    """Float32 vectors of a snapshot: the states that the method declares, and with prioritized replay the priorities.

    The target network is left out where it equals the online network at every boundary.
    """
    names = [name for name in run_schedule.method.states if name != "target" or run_schedule.has_own_target]
    return dict.fromkeys(names, parameters) | (
        {PRIORITIES: run_schedule.priorities + 1} if run_schedule.priorities else {}
    )


def snapshot_fields(run_schedule: RunSchedule, parameters: int) -> list[Field]:
    """The snapshots' part of the layout."""
    lanes = (run_schedule.lanes, run_schedule.max_rounds_ahead + 1)
    return [
        Field("lane_snapshot.data", "u1", (*lanes, run_schedule.lane_envs * ENV_BYTES), "the lane's owner"),
        Field("lane_snapshot.length", "i8", lanes, "the lane's owner"),
        Field("lane_snapshot.number", "i8", lanes, "the lane's owner"),
        *(
            Field(f"learner_snapshot.{name}", "f4", (LEARNER_BUFFERS, length), "learner")
            for name, length in state_lengths(run_schedule, parameters).items()
        ),
        Field("learner_snapshot.number", "i8", (LEARNER_BUFFERS,), "learner"),
    ]


class LaneSnapshots:
    """Snapshots of all lanes."""

    def __init__(self, arena: Arena, run_schedule: RunSchedule) -> None:
        self._data = arena["lane_snapshot.data"]
        self._length = arena["lane_snapshot.length"]
        self._number = arena["lane_snapshot.number"]
        self._every = run_schedule.snapshot_rounds

    def clear(self) -> None:
        """Before any process starts: there are none."""
        self._number[:] = -1

    def write(self, lane: int, boundary: int, data: bytes) -> None:
        """Keep the snapshot of `lane` at `boundary`."""
        buffer = boundary // self._every % self._number.shape[1]
        self._number[lane, buffer] = -1
        self._data[lane, buffer, : len(data)] = np.frombuffer(data, np.uint8)
        self._length[lane, buffer] = len(data)
        self._number[lane, buffer] = boundary

    def newest(self, lane: int) -> int:
        """Boundary of the newest whole snapshot of `lane`; -1: none."""
        return int(self._number[lane].max())

    def read(self, lane: int, boundary: int) -> bytes | None:
        """The snapshot at `boundary`, or None when it is not (or no longer) there."""
        buffer = boundary // self._every % self._number.shape[1]
        if self._number[lane, buffer] != boundary:
            return None
        data = self._data[lane, buffer, : self._length[lane, buffer]].tobytes()
        return data if self._number[lane, buffer] == boundary else None


class LearnerSnapshots:
    """Snapshots of the learner."""

    def __init__(self, arena: Arena, run_schedule: RunSchedule) -> None:
        self._data = {name: arena[f"learner_snapshot.{name}"] for name in state_lengths(run_schedule, 0)}
        self._number = arena["learner_snapshot.number"]
        self._every = run_schedule.snapshot_rounds

    def clear(self) -> None:
        """Before any process starts: there are none."""
        self._number[:] = -1

    def newest(self) -> int:
        """Boundary of the newest whole snapshot; -1: none."""
        return int(self._number.max())

    def write(self, boundary: int, store: Callable[[dict[str, NDArray[np.float32]]], None]) -> None:
        """Keep the learner's state at `boundary`; `store` fills the named vectors float32."""
        buffer = boundary // self._every % LEARNER_BUFFERS
        self._number[buffer] = -1
        store({name: data[buffer] for name, data in self._data.items()})
        self._number[buffer] = boundary

    def read(self, boundary: int) -> Mapping[str, NDArray[np.float32]] | None:
        """Views of the state at `boundary`, or None when it is not (or no longer) there."""
        buffer = boundary // self._every % LEARNER_BUFFERS
        if self._number[buffer] != boundary:
            return None
        return {name: data[buffer] for name, data in self._data.items()}
