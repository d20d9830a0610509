"""The parts of a commit that every schedule has: waits, the last boundary, records, the snapshot, evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from shared.memory.board import METRIC_RECORDS, Stop
from shared.memory.evaluation_queue import evaluations_until
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Waiter
from shared.process.child import Doorbells


class Commits:
    """The writer of `committed`: the learner, or the first process of workers.

    A process that was killed may call any method again for the same boundary.
    """

    def __init__(self, memory: Memory, waiter: Waiter, doorbells: Doorbells) -> None:
        """`doorbells` are those of all processes: all but the scribe wait for every commit."""
        self._memory, self._board, self._run_schedule = memory, memory.board, memory.run_schedule
        self._eval_every = memory.plan.config.evaluate.eval_every_steps
        self._waiter, self._scribe = waiter, doorbells[Role.SCRIBE]
        self._followers = doorbells.without(waiter.process, Role.SCRIBE)

    def wait_for_lanes(self, boundary: int) -> None:
        """Wait until every lane has finished the rounds before `boundary`."""
        finished = self._board.lane_finished.values
        self._board.barrier_ns[0] += self._waiter.wait(lambda: bool(finished.min() >= boundary))

    def wait_for_scribe(self, boundary: int) -> None:
        """Wait while a commit of `boundary` would let lanes overwrite what the scribe has yet to write.

        While the disk fails, the run continues without the scribe.
        """
        board, run_schedule = self._board, self._run_schedule

        def may_go_on() -> bool:
            written = int(board.written[0])
            if board.records_refused[0] or written >= board.newest_record:
                return True
            kept = run_schedule.record_number(boundary) - run_schedule.record_number(written) < METRIC_RECORDS
            needed = run_schedule.segment_begin(written) * run_schedule.round_ticks
            return kept and needed >= run_schedule.oldest_readable_tick(boundary)

        self._waiter.wait(may_go_on)

    def name_last(self, boundary: int, keep_own: Callable[[], object] = lambda: None) -> None:
        """After a request to stop, name the last boundary before the commit of `boundary`, and wait for its snapshots.

        It is the first boundary that no lane can have passed. A lane that stands there already keeps its snapshot when
        it is woken.

        Args:
            keep_own: keeps the snapshots of lanes that this process plays.
        """
        board, run_schedule = self._board, self._run_schedule
        if board.stop[0] == Stop.FINISH and board.last.read() == run_schedule.rounds:
            board.last.publish(min(run_schedule.rounds, boundary - 1 + run_schedule.max_rounds_ahead))
        if board.is_last(boundary):
            keep_own()
            for doorbell in self._followers:
                doorbell.ring()
            snapshots = self._memory.lane_snapshots.number.values
            self._waiter.wait(lambda: bool(snapshots.max(1).min() >= boundary))

    def record(self, boundary: int, metrics: Callable[[], tuple[int, Mapping[str, float]]]) -> None:
        """At the end of a record, keep its metrics for the scribe, unless a former incarnation did.

        Args:
            metrics: returns the number of the record's updates, and the means over them by name.
        """
        board = self._board
        if not boundary or not board.is_record(boundary):
            return
        row = board.metrics[self._run_schedule.record_number(boundary) % METRIC_RECORDS]
        updates, means = metrics()
        if row[-1] == boundary:
            return
        row[:-3] = [means[name] for name in self._run_schedule.method.metrics] if updates else float("nan")
        row[-3:-1] = updates, time.monotonic()
        row[-1] = boundary

    def snapshot(self, boundary: int, store: Callable[[dict[str, NDArray[np.float32]]], None]) -> None:
        """Keep a snapshot where one is due, unless a former incarnation did; `store` writes its vectors."""
        snapshots = self._memory.learner_snapshots
        if self._board.is_snapshot(boundary) and snapshots.newest() < boundary:
            snapshots.write(boundary, store)

    def queue_evaluation(self, boundary: int, online_into: Callable[[NDArray[np.float32]], None]) -> None:
        """Queue this version when the round before `boundary` reached a multiple of `eval_every_steps`.

        Args:
            online_into: writes the parameters of this version in canonical layout.
        """
        queue, steps = self._memory.evaluations, boundary * self._run_schedule.round_steps
        due = evaluations_until(boundary, self._run_schedule.round_steps, self._eval_every)
        if not boundary or due == evaluations_until(boundary - 1, self._run_schedule.round_steps, self._eval_every):
            return
        if boundary == self._board.evaluation_history[1]:
            return  # a resume with another interval: the boundary it begins at has the numbers of the former one
        queued = queue.queued.read()
        if queued and queue.step[(queued - 1) % len(queue.step)] >= steps:
            return  # an earlier incarnation queued it and was killed before the commit
        board = self._board
        before = int(board.waited_ns[self._waiter.process]) - int(board.evaluation_wait_ns[0])

        def free() -> bool:
            board.evaluation_wait_ns[0] = board.waited_ns[self._waiter.process] - before  # at each look, not at the end
            return not queue.full

        self._waiter.wait(free)
        place = queued % len(queue.data)
        online_into(queue.data[place])
        queue.step[place] = steps
        queue.queued.publish(queued + 1)

    def publish(self, boundary: int) -> None:
        """Say that the rounds before `boundary` are whole. The scribe is woken when a record ends."""
        self._board.commits.publish(boundary)
        for doorbell in self._followers:
            doorbell.ring()
        if self._board.is_record(boundary):
            self._scribe.ring()
