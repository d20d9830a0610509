"""The board: the words by which processes know of one another. Every word names its only writer.

All words are aligned 64-bit integers (or floats), so a read is never torn. A stale read is harmless everywhere: numbers
only grow, and whoever reads too early waits and looks again. Whose a lane is, its owner alone changes: an actor never
reads that of its own lanes too late, and inference, which asks it to ring a bell, at worst rings one in vain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import IntEnum

from shared.config.run_schedule import RunSchedule
from shared.memory.arena import Arena
from shared.memory.layout import Field

METRIC_SPANS = 256
"""How many spans (rounds between two snapshots) of learner metrics the board remembers for a scribe that is late."""
SPAN_METRICS = ("updates", "committed_at")
"""Columns of the learner's metrics behind those that the method declares: the number of the span's updates, and the
moment of its commit in seconds of CLOCK_MONOTONIC."""
BEFORE = ("seconds", "restarts", "redone_ticks", "redone_updates")
"""What former sittings of a resumed run add to its summary."""
CHECKPOINT = ("bytes", "seconds", "at_steps", "count")
"""Of the newest checkpoint of this sitting: size with its replay, time that it took, the clock of its boundary, and its
number, from 1."""

EVALUATION = ("steps", "episodes", "mean_return", "best_mean")
"""Of the newest evaluation beside training: the step of its version, its episodes and their mean, and the best mean of
the run so far. All are NaN before the first."""

CONTENTION = ("at", "others", "stolen")
"""Nanoseconds: of CLOCK_MONOTONIC at the newest reading, and the core time that other programs and the hypervisor have
taken until then (`shared.machine.contention`). All are 0 where the kernel does not tell."""

SAMPLES = 2
"""Samples of the growing words that the scribe keeps: at the beginning of learning, and at the newest record."""
MOMENT_WORDS, COUNTED_WORDS = 7, 3
"""Words of a sample (ringside/recording/load.py): for the moment, and for each process."""


class Phase(IntEnum):
    """What a process is doing, for display and for deadlines."""

    STARTING = 0
    WORKING = 1
    REPLAYING = 2
    WAITING = 3
    DONE = 4


class Stop(IntEnum):
    """Values of the stop word."""

    RUN = 0
    ABANDON = 1


def board_fields(run_schedule: RunSchedule, processes: int) -> list[Field]:
    """The board's part of the layout."""
    lanes = (run_schedule.lanes,)
    return [
        Field("board.stop", "i8", (1,), "supervisor"),
        Field("board.restarts", "i8", (processes,), "supervisor"),
        Field("board.moves", "i8", (1,), "supervisor"),
        Field("board.contention", "i8", (len(CONTENTION),), "supervisor"),
        Field("board.prepared", "i8", (1,), "scribe"),
        Field("board.begun_ns", "i8", (1,), "scribe"),
        Field("board.before", "f8", (len(BEFORE),), "scribe"),
        Field("board.inexact_since", "i8", (1,), "scribe"),
        Field("board.committed", "i8", (1,), "learner"),
        Field("process.phase", "i8", (processes,), "the process"),
        Field("process.heartbeat", "i8", (processes,), "the process"),
        Field("process.busy_ns", "i8", (processes,), "the process"),
        Field("process.waited_ns", "i8", (processes,), "the process"),
        Field("process.cpu_ns", "i8", (processes,), "the process"),
        Field("process.private_bytes", "i8", (processes,), "the process"),
        Field("process.device_bytes", "i8", (processes,), "the process"),
        Field("process.furthest", "i8", (processes,), "the process"),
        Field("process.redone", "i8", (processes,), "the process"),
        Field("lane.wanted", "i8", lanes, "supervisor"),
        Field("lane.owner", "i8", lanes, "the lane's owner"),
        Field("lane.life", "i8", lanes, "the lane's owner"),
        Field("lane.logged", "i8", lanes, "the lane's owner"),
        Field("lane.done", "i8", lanes, "the lane's owner"),
        Field("lane.finished", "i8", lanes, "the lane's owner"),
        Field("learner.updates", "i8", (1,), "learner"),
        Field("learner.barrier_ns", "i8", (1,), "learner"),
        Field("learner.evaluation_wait_ns", "i8", (1,), "learner"),
        Field("learner.replay_device_bytes", "i8", (1,), "learner"),
        Field("learner.metrics", "f8", (METRIC_SPANS, len(run_schedule.method.metrics) + len(SPAN_METRICS)), "learner"),
        Field("scribe.written", "i8", (1,), "scribe"),
        Field("scribe.episodes", "i8", (1,), "scribe"),
        Field("scribe.mean_return_100", "f8", (1,), "scribe"),
        Field("scribe.best_return", "f8", (1,), "scribe"),
        Field("scribe.outside_support", "f8", (1,), "scribe"),
        Field("scribe.evaluation", "f8", (len(EVALUATION),), "scribe"),
        Field("scribe.saved", "i8", (1,), "scribe"),
        Field("scribe.trouble", "i8", (1,), "scribe"),
        Field("scribe.checkpoint", "f8", (len(CHECKPOINT),), "scribe"),
        Field("scribe.samples", "i8", (SAMPLES, MOMENT_WORDS + COUNTED_WORDS * processes), "scribe"),
    ]


class Board:
    """Views of the board's words, and the few sums that several roles need."""

    def __init__(self, arena: Arena, run_schedule: RunSchedule) -> None:
        self.run_schedule = run_schedule
        self.stop = arena["board.stop"]
        self.restarts = arena["board.restarts"]
        self.moves = arena["board.moves"]
        self.contention = arena["board.contention"]
        self.prepared = arena["board.prepared"]
        self.begun_ns = arena["board.begun_ns"]
        self.before = arena["board.before"]
        self.inexact_since = arena["board.inexact_since"]
        self._committed = arena["board.committed"]
        self.phase = arena["process.phase"]
        self.heartbeat = arena["process.heartbeat"]
        self.busy_ns = arena["process.busy_ns"]
        self.waited_ns = arena["process.waited_ns"]
        self.cpu_ns = arena["process.cpu_ns"]
        self.private_bytes = arena["process.private_bytes"]
        self.device_bytes = arena["process.device_bytes"]
        self.furthest = arena["process.furthest"]
        self.redone = arena["process.redone"]
        self.lane_wanted = arena["lane.wanted"]
        self.lane_owner = arena["lane.owner"]
        self.lane_life = arena["lane.life"]
        self.lane_logged = arena["lane.logged"]
        self.lane_done = arena["lane.done"]
        self.lane_finished = arena["lane.finished"]
        self.updates = arena["learner.updates"]
        self.barrier_ns = arena["learner.barrier_ns"]
        self.evaluation_wait_ns = arena["learner.evaluation_wait_ns"]
        self.replay_device_bytes = arena["learner.replay_device_bytes"]
        self.metrics = arena["learner.metrics"]
        self.metric_names = (*run_schedule.method.metrics, *SPAN_METRICS)
        self.written = arena["scribe.written"]
        self.episodes = arena["scribe.episodes"]
        self.mean_return_100 = arena["scribe.mean_return_100"]
        self.best_return = arena["scribe.best_return"]
        self.outside_support = arena["scribe.outside_support"]
        self.evaluation = arena["scribe.evaluation"]
        self.saved = arena["scribe.saved"]
        self.trouble = arena["scribe.trouble"]
        self.checkpoint = arena["scribe.checkpoint"]
        self.samples = arena["scribe.samples"]

    def clear(self, actors: Sequence[int]) -> None:
        """Before any process starts: nothing is committed, nothing is finished, lanes are with their first `actors`."""
        self.lane_owner[:] = self.lane_wanted[:] = actors
        self._committed[0] = -1
        self.lane_finished[:] = -1
        self.written[0] = -1
        self.saved[0] = -1
        self.inexact_since[0] = -1
        self.furthest[:] = -1
        self.mean_return_100[0] = self.best_return[0] = self.outside_support[0] = float("nan")
        self.metrics[:] = self.checkpoint[:] = self.evaluation[:] = float("nan")

    @property
    def stopping(self) -> bool:
        """Whether the supervisor asked everybody to leave. By `item`: numpy takes 7 us to compare with an enum."""
        return bool(self.stop.item(0) != Stop.RUN)

    @property
    def committed(self) -> int:
        """Boundaries committed: rounds below this number are whole. -1: not even the beginning."""
        return int(self._committed[0])

    @committed.setter
    def committed(self, boundary: int) -> None:
        self._committed[0] = boundary

    @property
    def finished(self) -> bool:
        """Whether the last round is committed."""
        return self.committed >= self.run_schedule.rounds

    def beat(self, process: int) -> None:
        """Say that `process` lives. CLOCK_MONOTONIC is one clock for all processes and stands still in suspend."""
        self.heartbeat[process] = time.monotonic_ns()
