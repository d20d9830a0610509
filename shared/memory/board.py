"""The board, the control block of a run: counters, heartbeats, phases and the stop word, with one writer per field.

All fields are aligned 64-bit integers (or floats), so a read is never torn. A stale read is harmless: counters only
grow, and a reader that is too early waits and reads again. Only the owner of a lane changes its owner field, so an
actor never reads a stale owner of the lanes that it plays. The inference server may read a stale owner; then it rings a
doorbell in vain.
"""

from __future__ import annotations

import collections.abc
import time
from enum import IntEnum

from shared.config.run_schedule import RunSchedule
from shared.memory.layout import ONE, SharedFields, Views, float64, int64, sequence, sequence_array

METRIC_RECORDS = 256
"""Records whose metrics the board keeps for a late scribe."""
RECORD_METRICS = ("updates", "committed_at", "boundary")
"""Columns of the learner's metrics behind those that the method declares: the number of the record's updates, the
moment of its last commit in seconds of CLOCK_MONOTONIC, and the boundary of that commit."""
BEFORE = ("seconds", "restarts", "redone_ticks", "redone_updates")
"""Sums over former sessions of a resumed run, for its summary."""
CHECKPOINT = ("bytes", "seconds", "at_steps", "count")
"""Figures of the newest checkpoint of this session: size with its replay, duration, steps at its boundary, and number,
from 1."""

EVALUATION = ("steps", "episodes", "mean_return", "best_mean")
"""Figures of the newest evaluation beside training: the step of its version, its episodes and their mean, and the best
mean of the run. All are NaN before the first."""

CONTENTION = ("at", "others", "stolen")
"""Nanoseconds: CLOCK_MONOTONIC at the newest reading, and the core time that other programs and the hypervisor have
taken until then (`shared.machine.contention`). All are 0 where the kernel does not count it."""

SAMPLES = 2
"""Samples of the growing fields that the scribe keeps: at the beginning of learning, and at the newest record."""
MOMENT_WORDS, COUNTED_WORDS, GATEWAY_WORDS = 7, 3, 3
"""Words of a sample (ringside/records/bottleneck.py): for the moment, for each process, and for each gateway."""


class Phase(IntEnum):
    """State of a process, for display and for deadlines."""

    STARTING = 0
    WORKING = 1
    REPLAYING = 2
    WAITING = 3
    DONE = 4


class Stop(IntEnum):
    """Values of the stop word."""

    RUN = 0
    FINISH = 1
    """Play up to the last boundary, `Board.last`, which the writer of `committed` names."""
    ABANDON = 2
    """Leave at once; what comes after the newest snapshot is dropped."""


_PROCESSES = ("processes",)
_LANES = ("lanes",)
_OWNER = "the lane's owner"
_ITSELF = "the process"


class Board(SharedFields):
    """Views of the board's fields, and the few sums that several roles need."""

    stop = int64("board.stop", ONE, "supervisor", "A value of `Stop`.")
    stop_asked_ns = int64("board.stop_asked_ns", ONE, "supervisor", "CLOCK_MONOTONIC of the request to stop; 0: none.")
    restarts = int64("board.restarts", _PROCESSES, "supervisor", "Restarts of each process.")
    moves = int64("board.moves", ONE, "supervisor", "Lanes that went to another actor.")
    contention = int64("board.contention", (len(CONTENTION),), "supervisor", "As `CONTENTION` says.")
    prepared = int64("board.prepared", ONE, "scribe", "1: the state before the first round is in memory.")
    begun_ns = int64("board.begun_ns", ONE, "scribe", "Start of this session, in nanoseconds of CLOCK_MONOTONIC.")
    before = float64("board.before", (len(BEFORE),), "scribe", "As `BEFORE` says.")
    evaluation_history = int64(
        "board.evaluation_history",
        (2,),
        "scribe",
        "Versions queued before --eval-every-steps changed at a resume, and the boundary of that resume.",
    )
    inexact_since = int64("board.inexact_since", ONE, "scribe", "Step from which the run is inexact; -1: it is exact.")
    commits = sequence("board.committed", "learner", "Newest boundary whose rounds are whole; -1: none.")
    last = sequence("board.last", "learner", "Boundary at which the run ends: after its rounds, or where it stops.")
    phase = int64("process.phase", _PROCESSES, _ITSELF, "A value of `Phase`.")
    heartbeat = int64("process.heartbeat", _PROCESSES, _ITSELF, "Newest heartbeat, in ns of CLOCK_MONOTONIC.")
    busy_ns = int64("process.busy_ns", _PROCESSES, _ITSELF, "Time at work.")
    waited_ns = int64("process.waited_ns", _PROCESSES, _ITSELF, "Time in waits.")
    cpu_ns = int64("process.cpu_ns", _PROCESSES, _ITSELF, "CPU time of all incarnations.")
    private_bytes = int64("process.private_bytes", _PROCESSES, _ITSELF, "Memory that is not shared.")
    device_bytes = int64("process.device_bytes", _PROCESSES, _ITSELF, "Memory of a GPU.")
    furthest = int64("process.furthest", _PROCESSES, _ITSELF, "Furthest point of work; a death beyond is progress.")
    redone = int64("process.redone", _PROCESSES, _ITSELF, "Ticks or updates done again.")
    vacant = int64("process.vacant", _PROCESSES, _ITSELF, "1: a gateway that has no node.")
    lane_wanted = int64("lane.wanted", _LANES, "supervisor", "Actor that should own the lane.")
    lane_owner = int64("lane.owner", _LANES, _OWNER, "Actor that owns the lane; its last write hands it over.")
    lane_life = int64("lane.life", _LANES, _OWNER, "Times that an actor began with the lane.")
    lane_inexact = int64("lane.inexact", _LANES, _OWNER, "Step from which its env does not repeat itself; -1: none.")
    lane_logged = sequence_array("lane.logged", _LANES, _OWNER, "Ticks whose actions are in the ring.")
    lane_done = sequence_array("lane.done", _LANES, _OWNER, "Ticks whose results are in the ring.")
    lane_finished = sequence_array("lane.finished", _LANES, _OWNER, "Rounds that are whole, with their snapshots.")
    updates = int64("learner.updates", ONE, "learner", "Updates done.")
    barrier_ns = int64("learner.barrier_ns", ONE, "learner", "Time in waits for lanes.")
    evaluation_wait_ns = int64("learner.evaluation_wait_ns", ONE, "learner", "Time in waits for a full queue.")
    replay_device_bytes = int64("learner.replay_device_bytes", ONE, "learner", "Memory of a GPU for the replay.")
    metrics = float64("learner.metrics", (METRIC_RECORDS, "metrics"), "learner", "Rows of records; `metric_names`.")
    written = int64("scribe.written", ONE, "scribe", "Rounds written down.")
    episodes = int64("scribe.episodes", ONE, "scribe", "Episodes of the run.")
    mean_return_100 = float64("scribe.mean_return_100", ONE, "scribe", "Mean return of the last 100 episodes.")
    best_return = float64("scribe.best_return", ONE, "scribe", "Greatest return of the run.")
    outside_support = float64("scribe.outside_support", ONE, "scribe", "With c51: share of returns beyond the atoms.")
    evaluation = float64("scribe.evaluation", (len(EVALUATION),), "scribe", "As `EVALUATION` says.")
    saved = int64("scribe.saved", ONE, "scribe", "Boundary of the newest checkpoint; -1: none.")
    trouble = int64("scribe.trouble", ONE, "scribe", "errno of a write that is refused; 0: none.")
    records_refused = int64("scribe.records_refused", ONE, "scribe", "1: the disk refuses records.")
    saved_at_ns = int64("scribe.saved_at_ns", ONE, "scribe", "CLOCK_MONOTONIC of the last checkpoint, or of the start.")
    checkpoint = float64("scribe.checkpoint", (len(CHECKPOINT),), "scribe", "As `CHECKPOINT` says.")
    samples = int64("scribe.samples", (SAMPLES, "sample"), "scribe", "Samples of the growing fields.")

    def __init__(self, views: Views, run_schedule: RunSchedule) -> None:
        """Bind the fields."""
        super().__init__(views)
        self.run_schedule = run_schedule
        self.metric_names = (*run_schedule.method.metrics, *RECORD_METRICS)

    def metrics_of(self, number: int) -> dict[str, float]:
        """Metrics of a record by name, or of a later one that has taken its row."""
        return dict(zip(self.metric_names, self.metrics[number % METRIC_RECORDS].tolist(), strict=True))

    @staticmethod
    def sizes(run_schedule: RunSchedule, processes: int, gateways: int = 0) -> dict[str, int]:
        """Sizes of the board's fields; gateways are among the processes."""
        return {
            "processes": processes,
            "lanes": run_schedule.lanes,
            "metrics": len(run_schedule.method.metrics) + len(RECORD_METRICS),
            "sample": MOMENT_WORDS + COUNTED_WORDS * processes + GATEWAY_WORDS * gateways,
        }

    def clear(self, actors: collections.abc.Sequence[int]) -> None:
        """Before any process starts: nothing is committed, nothing is finished, lanes are with their first `actors`."""
        self.lane_owner[:] = self.lane_wanted[:] = actors
        self.commits.publish(-1)
        self.last.publish(self.run_schedule.rounds)
        self.lane_finished.publish_all(-1)
        self.written[0] = -1
        self.saved[0] = -1
        self.inexact_since[0] = -1
        self.lane_inexact[:] = -1
        self.furthest[:] = -1
        self.mean_return_100[0] = self.best_return[0] = self.outside_support[0] = float("nan")
        self.metrics[:] = self.checkpoint[:] = self.evaluation[:] = float("nan")

    @property
    def stopping(self) -> bool:
        """True if the supervisor asked all processes to leave. By `item`: numpy takes 7 us to compare with an enum."""
        return bool(self.stop.item(0) == Stop.ABANDON)

    @property
    def stops_at(self) -> int | None:
        """The boundary up to which the run goes on after a request to stop, named or expected; None: it does not."""
        if self.stop.item(0) != Stop.FINISH:
            return None
        return min(self.last.read(), self.committed + self.run_schedule.max_rounds_ahead)

    @property
    def committed(self) -> int:
        """Boundaries committed: rounds below this number are whole. -1: not even the beginning."""
        return self.commits.read()

    @property
    def finished(self) -> bool:
        """True if the last round is committed: of the run, or before a stop."""
        return self.committed >= self.last.read()

    @property
    def complete(self) -> bool:
        """True if all rounds of the run are committed."""
        return self.committed >= self.run_schedule.rounds

    def is_last(self, boundary: int) -> bool:
        """True if the run ends at `boundary`."""
        return boundary == self.last.read()

    def is_snapshot(self, boundary: int) -> bool:
        """True if every role keeps a snapshot at `boundary`: a regular one, or the last."""
        return self.run_schedule.is_snapshot(boundary) or self.is_last(boundary)

    def is_record(self, boundary: int) -> bool:
        """True if a record ends at `boundary`: a whole one, or the last."""
        return self.run_schedule.is_record(boundary) or self.is_last(boundary)

    @property
    def env_inexact_since(self) -> int:
        """The first step from which an env does not repeat itself; -1: all do, as far as is known."""
        return min((step for step in self.lane_inexact.tolist() if step >= 0), default=-1)

    @property
    def newest_record(self) -> int:
        """The newest boundary at which a record ends."""
        committed = self.committed
        return committed if self.is_last(committed) else committed - committed % self.run_schedule.record_rounds

    def record_heartbeat(self, process: int) -> None:
        """Record a heartbeat. CLOCK_MONOTONIC is one clock for all processes and stands still in suspend."""
        self.heartbeat[process] = time.monotonic_ns()
