"""The parts of a commit that every schedule has: waits, the span's metrics, the snapshot, evaluations, `committed`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.memory.boundary import newest_boundary
from shared.memory.parts.board import METRIC_SPANS
from shared.memory.parts.evaluation_queue import evaluations_until
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter


class Commits:
    """The writer of `committed`: the learner, or the first process of workers.

    A process that was killed may call any method again for the same boundary.
    """

    def __init__(self, memory: Memory, waiter: Waiter, followers: Sequence[Doorbell]) -> None:
        """`followers` are the doorbells of the processes that wait for a commit."""
        self._memory, self._board, self._run_schedule = memory, memory.board, memory.run_schedule
        self._eval_every = memory.plan.config.evaluate.eval_every_steps
        self._waiter, self._followers = waiter, followers

    def wait_for_lanes(self, boundary: int) -> None:
        """Wait until every lane has finished the rounds before `boundary`."""
        finished = self._board.lane_finished.values
        self._board.barrier_ns[0] += self._waiter.wait(lambda: bool(finished.min() >= boundary))

    def wait_for_scribe(self, boundary: int) -> None:
        """Wait while a commit of `boundary` would overwrite data that the scribe has yet to write.

        While the disk fails, the run continues without the scribe.
        """
        board, run_schedule = self._board, self._run_schedule

        def may_go_on() -> bool:
            written = int(board.written[0])
            if board.spans_refused[0] or written >= newest_boundary(self._memory):
                return True
            kept = (boundary - written) // run_schedule.snapshot_rounds < METRIC_SPANS
            return kept and written * run_schedule.round_ticks >= run_schedule.oldest_readable_tick(boundary)

        self._waiter.wait(may_go_on)

    def snapshot(
        self,
        boundary: int,
        metrics: Callable[[], tuple[int, Mapping[str, float]]],
        store: Callable[[dict[str, NDArray[np.float32]]], None],
    ) -> None:
        """At the end of a span, keep its metrics for the scribe and a snapshot, unless a former incarnation did.

        Args:
            metrics: returns the number of the span's updates, and the means over them by name.
            store: writes the vectors of the snapshot.
        """
        snapshots = self._memory.learner_snapshots
        if not self._run_schedule.is_snapshot(boundary) or snapshots.newest() >= boundary:
            return
        if boundary:
            self._note(boundary, *metrics())
        snapshots.write(boundary, store)

    def _note(self, boundary: int, updates: int, means: Mapping[str, float]) -> None:
        """Write the metrics of the span before `boundary`."""
        row = self._board.metrics[(boundary // self._run_schedule.snapshot_rounds - 1) % METRIC_SPANS]
        row[:] = float("nan")
        row[-2:] = updates, time.monotonic()
        if updates:
            for column, name in enumerate(self._run_schedule.method.metrics):
                row[column] = means[name]

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
        """Say that the rounds before `boundary` are whole."""
        self._board.commits.publish(boundary)
        for doorbell in self._followers:
            doorbell.ring()
