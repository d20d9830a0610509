"""Snapshots, from which lanes and learner repeat the current round after a restart.

A snapshot replaces the oldest. Its writer clears the number of the buffer first and sets it last, so a writer killed
midway leaves no snapshot that looks whole. There are two buffers. With the schedule `free` a lane has three: it may be
two rounds ahead of the last commit, and the snapshot of that commit must still exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RunSchedule
from shared.memory.layout import Field, SharedFields, Views, int64, sequence_array, uint8
from shared.memory.sequence import SequenceArray

SNAPSHOT_BYTES = 57_344
"""Most bytes of an env's own snapshot."""
ENV_BYTES = SNAPSHOT_BYTES + 64
"""With the lane's header of it."""
LEARNER_BUFFERS = 2
_LANE_BUFFERS = ("lanes", "lane_buffers")
PRIORITIES = "priorities"
"""With prioritized replay one vector more: every leaf of the tree, and the greatest priority so far."""


def state_lengths(run_schedule: RunSchedule, parameters: int) -> dict[str, int]:
    """Float32 vectors of a snapshot: parameters, moments, and with prioritized replay the priorities.

    The target network is left out where it equals the online network at every boundary.
    """
    names = ("online", *(["target"] if run_schedule.has_own_target else []), "moment1", "moment2")
    leaves = {PRIORITIES: run_schedule.priorities + 1} if run_schedule.priorities else {}
    return dict.fromkeys(names, parameters) | leaves


def state_fields(run_schedule: RunSchedule, parameters: int) -> dict[str, Field]:
    """The learner's vectors in the table, by name."""
    return {
        name: Field(f"learner_snapshot.{name}", "f4", (LEARNER_BUFFERS, length), "learner")
        for name, length in state_lengths(run_schedule, parameters).items()
    }


class _Snapshots(SharedFields):
    """Buffers of snapshots with their boundaries."""

    number: SequenceArray

    def clear(self) -> None:
        """Before any process starts: there are none."""
        self.number.publish_all(-1)

    def _buffer_of(self, boundary: int, *lane: int) -> int | None:
        """The buffer that holds the snapshot at `boundary`; None: there is none."""
        found = np.flatnonzero(self.number.values[lane] == boundary)
        return int(found[0]) if len(found) else None

    def newest(self, *lane: int) -> int:
        """Boundary of the newest whole snapshot, of a lane where there are lanes; -1: none."""
        return int(self.number.values[lane].max())


LANE_DATA = "lane_snapshot.data"
"""Name of the field that is large."""


class LaneSnapshots(_Snapshots):
    """Snapshots of all lanes."""

    data = uint8(LANE_DATA, (*_LANE_BUFFERS, "lane_bytes"), "the lane's owner", "State of envs and lane.")
    length = int64("lane_snapshot.length", _LANE_BUFFERS, "the lane's owner", "Bytes of it.")
    number = sequence_array("lane_snapshot.number", _LANE_BUFFERS, "the lane's owner", "Boundary of it; -1: none.")

    @staticmethod
    def sizes(run_schedule: RunSchedule) -> dict[str, int]:
        """Sizes of the fields."""
        return {
            "lanes": run_schedule.lanes,
            "lane_buffers": run_schedule.lane_buffers,
            "lane_bytes": run_schedule.lane_envs * ENV_BYTES,
        }

    def write(self, lane: int, boundary: int, data: bytes) -> None:
        """Keep the snapshot of `lane` at `boundary`."""
        buffer = int(self.number.values[lane].argmin())
        number = self.number.at(lane, buffer)
        number.publish(-1)
        self.data[lane, buffer, : len(data)] = np.frombuffer(data, np.uint8)
        self.length[lane, buffer] = len(data)
        number.publish(boundary)

    def read(self, lane: int, boundary: int) -> bytes | None:
        """The snapshot at `boundary`, or None when it is not (or no longer) there."""
        buffer = self._buffer_of(boundary, lane)
        if buffer is None:
            return None
        data = self.data[lane, buffer, : self.length[lane, buffer]].tobytes()
        return data if self.number.at(lane, buffer).read() == boundary else None


class LearnerSnapshots(_Snapshots):
    """Snapshots of the learner."""

    number = sequence_array("learner_snapshot.number", (LEARNER_BUFFERS,), "learner", "Boundary of each; -1: none.")

    def __init__(self, views: Views, run_schedule: RunSchedule) -> None:
        """Bind the fields."""
        super().__init__(views)
        self._data = {name: views[item.name] for name, item in state_fields(run_schedule, 0).items()}

    def write(self, boundary: int, store: Callable[[dict[str, NDArray[np.float32]]], None]) -> None:
        """Keep the learner's state at `boundary`; `store` fills the named vectors float32."""
        buffer = int(self.number.values.argmin())
        number = self.number.at(buffer)
        number.publish(-1)
        store({name: data[buffer] for name, data in self._data.items()})
        number.publish(boundary)

    def read(self, boundary: int) -> Mapping[str, NDArray[np.float32]] | None:
        """Views of the state at `boundary`, or None when it is not (or no longer) there."""
        buffer = self._buffer_of(boundary)
        return None if buffer is None else {name: data[buffer] for name, data in self._data.items()}
