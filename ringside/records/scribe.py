"""The scribe: the process that records a run. Metrics, TensorBoard events, segments, checkpoints, the summary.

It reads committed ticks from the rings, also when it is late or was killed: the learner waits before lanes overwrite
ticks that are not recorded, unless the disk refuses writes. A record covers about 1,000 steps, and has the number of
its first round. A stop may split one in two.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.records.bottleneck import LEARNING, NEWEST, Sample, load_between
from ringside.records.metrics import Episode, episodes_in
from ringside.records.preparation import RunFiles, drop_evaluations, prepare, publish_totals
from ringside.records.scores import summarize
from ringside.records.summary import make_summary, run_counters
from shared.checkpoint.manifest import Manifest, read_manifest
from shared.checkpoint.segments import Segment, segment_of
from shared.config.method_declaration import C51Settings
from shared.config.settings import Config
from shared.errors import FatalError
from shared.files import disk_trouble
from shared.files.atomic import write_atomic
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.machine import facts
from shared.memory.board import Phase
from shared.memory.boundary import Moved, capture, newest_boundary
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.child import ChildSpec, enter


def record_values(
    memory: Memory, first: int, stop: int, sample: Sample, *, held: bool
) -> dict[str, float | int | None]:
    """Values of the record of the rounds [first, stop), without its episodes.

    Args:
        sample: of the board, taken when they are recorded.
        held: True if the rings still hold their slots.
    """
    run_schedule, board, config = memory.run_schedule, memory.board, memory.plan.config
    steps, frames = (stop - first) * run_schedule.round_steps, config.play.frames_per_step
    updates = run_schedule.updates_before(stop) - run_schedule.updates_before(first)
    ticks = first * run_schedule.round_ticks, stop * run_schedule.round_ticks
    values: dict[str, float | int | None] = {
        "frames": None if frames is None else stop * run_schedule.round_steps * frames,
        "updates": run_schedule.updates_before(stop),
        "epsilon": run_schedule.shown_epsilon(ticks[1], config.explore),
        "learning_rate": run_schedule.learning_rate(stop - 1, config.learn),
        "samples_per_step": updates * run_schedule.update_samples / steps,
        "valid_steps": None,
    }
    if held:
        ring = memory.ring.field
        values["valid_steps"] = int(ring["valid"][:, np.arange(*ticks) % run_schedule.capacity].sum())
        if config.algorithm.method == "c51":
            values["outside_support"] = outside_support(ring, *ticks, config)
    number = run_schedule.record_number(stop)
    former, row = map(board.metrics_of, (number - 1, number))
    if row["boundary"] == stop:  # else the learner has reused the row
        begun, at = float(board.begun_ns[0]) / 1e9, row["committed_at"]
        # The first record after a start, with no row before it, is measured from the start.
        seconds = at - (former["committed_at"] if former["committed_at"] < at else begun)
        values |= {name: row[name] for name in memory.plan.method.metrics}
        values["seconds"] = float(board.before[0]) + at - begun
        values["steps_per_second"] = steps / seconds
        values["frames_per_second"] = None if frames is None else steps * frames / seconds
        values["updates_per_second"] = row["updates"] / seconds  # counted by the learner
    # Busy shares since the newest record. Where nodes play, theirs is that of the actors.
    groups = load_between(memory, Sample(memory, board.samples[NEWEST]), sample).groups
    shares = {name: group.busy for name, group in groups.items()}
    shares |= {"actors": shares["nodes"]} if "nodes" in shares else {}
    names = ("workers",) if run_schedule.workers else ("learner", "inference", "actors")
    return values | {f"{name}_busy": shares.get(name) for name in names}


def outside_support(ring: Mapping[str, NDArray[np.generic]], first_tick: int, stop_tick: int, config: Config) -> float:
    """Share of the states of a record whose discounted return lies outside --v-min to --v-max, in [0, 1].

    The projection of Bellemare et al. 2017, Algorithm 1, moves such a return to the nearer end of the support. A return
    counts up to the end of its episode or of the record.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; the ticks are committed.
        first_tick, stop_tick: ticks of the record, [first_tick, stop_tick).
        config: its discount, clipping and support.
    """
    support = config.algorithm.settings
    assert isinstance(support, C51Settings), "only c51 has a support"
    slots = np.arange(first_tick, stop_tick) % ring["valid"].shape[1]
    reward = ring["raw_reward"][:, slots].astype(np.float64)
    if config.learn.clip_rewards:
        reward = np.sign(reward)
    valid = ring["valid"][:, slots].astype(bool)
    ends = np.logical_or.reduce([ring[name][:, slots] for name in ("terminated", "truncated", "life_lost")])
    outside, value = 0, np.zeros_like(reward[:, 0])
    for tick in reversed(range(len(slots))):
        later = np.where(ends[:, tick], 0.0, config.learn.discount * value)
        value = np.where(valid[:, tick], reward[:, tick] + later, 0.0)
        outside += int(np.count_nonzero((value < support.v_min) | (support.v_max < value)))
    return outside / max(1, int(valid.sum()))


FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""Pause between two attempts to write to a refusing disk; it doubles from the first value up to the second."""
KINDS = ("end", "records", "segments", "checkpoints", "evaluations")
"""Kinds of records, each with retries of its own."""
LAST_TRY_SECONDS = 600.0
"""Time limit for retries of the last checkpoint after the last round. A run that is asked to stop retries once."""


class Retry:
    """Time at which something is written again that the disk refused; the pause doubles with each refusal."""

    at = 0.0
    error = 0
    """errno of the last refusal; 0: there was none."""
    _seconds = FIRST_RETRY_SECONDS

    @property
    def may_try(self) -> bool:
        """True once the pause is over."""
        return time.monotonic() >= self.at

    def postpone(self, error: OSError) -> None:
        """Count a refusal."""
        self.at, self.error = time.monotonic() + self._seconds, error.errno or errno.EIO
        self._seconds = min(2 * self._seconds, RETRY_SECONDS)


class Scribe:
    """Recorder of one run. Its state can be rebuilt from shared memory and files."""

    def __init__(
        self, memory: Memory, run_dir: Path, lock: bytes | None = None, checkpoint: Manifest | None = None
    ) -> None:
        """Prepare the memory, unless a former incarnation did; `lock` as for `RunFiles`, `checkpoint` for `prepare`."""
        self._memory, self._board, self._run_schedule = memory, memory.board, memory.run_schedule
        self._config = memory.plan.config
        self._heartbeat = partial(memory.board.record_heartbeat, Role.SCRIBE)
        self._files = RunFiles(memory, run_dir, self._heartbeat, lock)
        self._former: dict[str, Any] = {}
        """The summary of the start before this one."""
        if not self._board.prepared[0]:
            self._former = read_object(run_dir / SUMMARY_FILE)
            prepare(memory, self._files, self._heartbeat, checkpoint)
        self._machine = facts.describe()  # before the work: a driver may take longer than a heartbeat
        self.retries = {kind: Retry() for kind in KINDS}
        """A refusal of one kind delays no other: there may be space for a line, and none for a checkpoint."""
        self._has_recorded = False
        """True once this incarnation has recorded a round."""

    # --- due work

    def due(self) -> bool:
        """True if something is due to be recorded."""
        return self._record_due() or self._evaluation_due() or self._save_due()

    def _record_due(self) -> bool:
        return bool(self.retries["records"].may_try and self._board.written[0] < self._board.newest_record)

    def _evaluation_due(self) -> bool:
        evaluations = self._memory.evaluations
        return bool(self.retries["evaluations"].may_try and evaluations.logged.read() < evaluations.done.read())

    def _save_due(self) -> bool:
        every = self._config.run.checkpoint_every_minutes * 60e9
        behind = self._board.saved[0] < newest_boundary(self._memory)
        # The board keeps the moment: a scribe that dies in every checkpoint tries it first when it starts again, so its
        # deaths count as in a row.
        waited = time.monotonic_ns() - self._board.saved_at_ns[0]
        return bool(behind and self.retries["checkpoints"].may_try and waited >= every)

    # --- writing

    def work(self) -> None:
        """Record the most urgent thing that is due. What the disk refuses is reported and tried again later."""
        if self._evaluation_due() and self._record("evaluations", self._record_evaluation):
            return
        if self._save_due() and self._record("checkpoints", lambda: self.save() >= 0):
            return
        if self._record_due():  # the last, since in a fast run one is always due
            self._record("records", self._record_rounds)

    def _record(self, kind: str, record: Callable[[], bool | None]) -> bool:
        """Record something of a kind. Return False if the disk refuses, or `record` does because it has to wait."""
        try:
            self._files.require_own_directory()
            recorded = record() is not False
        except OSError as error:
            self.report(error, kind)
            return False
        if recorded:
            self.retries[kind] = Retry()
        self._publish_trouble()
        return recorded

    def _oldest_readable_tick(self) -> int:
        """Oldest tick that no lane can overwrite now."""
        return self._run_schedule.oldest_readable_tick(self._board.committed)

    def _record_rounds(self) -> None:
        """Write the next record: metrics, events and, of a replay, the segments that end with it.

        Raises:
            OSError: the disk refuses; the whole record is retried.
        """
        self._heartbeat()  # a checkpoint may write many records first
        if not self._has_recorded:
            drop_evaluations(self._files.run_dir, of_versions_from=0)  # newer weights will follow
            self._has_recorded = True
        log, events = self._files.metrics, self._files.events
        run_schedule, first = self._run_schedule, int(self._board.written[0])
        stop = min(first - first % run_schedule.record_rounds + run_schedule.record_rounds, self._board.last.read())
        steps = stop * run_schedule.round_steps
        sample = Sample.take(self._memory, time.monotonic_ns())
        values, episodes = self._read_rounds(first, stop, sample)
        log.log_round(first, steps, values, episodes, run_schedule.envs)
        if events is not None:
            events.round(steps, values | {"mean_return_100": log.totals.mean_return_100}, episodes, run_schedule.envs)
        if self._config.run.checkpoint_replay and not run_schedule.method.on_policy:
            for index in range(first // run_schedule.segment_rounds, stop // run_schedule.segment_rounds):
                if self.retries["segments"].may_try:
                    segment = segment_of(run_schedule, index)
                    self._record("segments", partial(self._add_segment_of_record, segment))
        publish_totals(self._board, log.totals, values)
        if first < run_schedule.first_learning_round <= stop:
            self._board.samples[LEARNING] = sample.words
        self._board.samples[NEWEST] = sample.words
        self._board.written[0] = stop
        self.retries["records"] = Retry()  # `save` calls this, too

    def _read_rounds(self, first: int, stop: int, sample: Sample) -> tuple[dict[str, Any], list[Episode]]:
        """Values and episodes of the record of the rounds [first, stop).

        After a long disk error the lanes may have overwritten the slots, or do so during the read.
        """
        begin, end = first * self._run_schedule.round_ticks, stop * self._run_schedule.round_ticks
        if begin >= self._oldest_readable_tick():
            episodes = episodes_in(self._memory.ring.field, begin, end)
            values = record_values(self._memory, first, stop, sample, held=True)
            if begin >= self._oldest_readable_tick():
                return values, episodes
        return record_values(self._memory, first, stop, sample, held=False), []

    def _add_segment_of_record(self, segment: Segment) -> None:
        """Add a segment that is complete. Of one that is refused the next checkpoint tries again."""
        with suppress(Moved):  # then it has left the replay window, too
            self._add_segment(segment)

    def _add_segment(self, segment: Segment, needed_from: int = 0) -> None:
        """Compress a segment of which the ticks from `needed_from` are needed.

        Raises:
            Moved: lanes overwrote it during compression; the segment is deleted.
        """
        self._heartbeat()
        self._files.checkpoints.add_segment(segment, self._memory.ring.field)
        if max(needed_from, segment.first_tick) < self._oldest_readable_tick():
            self._files.checkpoints.discard_segment(segment.name)
            raise Moved(f"{segment.name} was overwritten during compression.")

    def _record_evaluation(self) -> None:
        """Record the next evaluation, and save its version if it is the best so far."""
        queue, number = self._memory.evaluations, self._memory.evaluations.logged.read()
        place = number % len(queue.returns)
        steps = int(queue.step[place])
        figures = summarize(self._config.play.played, queue.returns[place])
        values: dict[str, float | int | str | None] = {
            "episodes": figures.episodes,
            "std_return": figures.sd,
            **{f"{name}_return": getattr(figures, name) for name in ("mean", "median", "best")},
            "human_normalized": figures.human_normalized,
            "mean_length": float(queue.lengths[place].mean()),
            "protocol": self._config.play.protocol,
            "seconds": run_counters(self._memory)["seconds"],
        }
        boundary = steps // self._run_schedule.round_steps
        best = np.fmax(self._board.evaluation[-1], figures.mean)
        self._board.evaluation[:] = steps, figures.episodes, figures.mean, best  # even if the disk refuses it
        self._files.metrics.log_evaluation(number, boundary, steps, values)
        if self._files.events is not None:
            self._files.events.evaluation(steps, values)
        self._files.checkpoints.save_best(queue.data[place], boundary, figures.mean)
        queue.logged.publish(number + 1)

    def save(self) -> int:
        """Write a checkpoint of the newest boundary and return the boundary; -1: none yet, or rounds passed too fast.

        Raises:
            OSError: the disk refuses; older checkpoints are untouched.
        """
        begun = time.monotonic()
        for _ in range(3):  # a capture fails only if a whole round passes during it
            boundary = newest_boundary(self._memory)
            if boundary < 0 or boundary <= self._board.saved[0]:
                return boundary
            try:
                arrays = capture(self._memory, boundary)  # first: snapshots are overwritten two spans later
                while self._board.written[0] < boundary:
                    self._record_rounds()
                oldest = self._run_schedule.oldest_needed_tick(boundary)
                for segment in self._files.checkpoints.missing_segments(boundary):
                    self._add_segment(segment, oldest)
                self._heartbeat()
            except Moved:
                continue
            self._files.sync()
            weights = np.asarray(arrays["online"], np.float32)
            size = self._files.checkpoints.save(boundary, arrays, weights, run_counters(self._memory))
            self._board.saved_at_ns[0] = time.monotonic_ns()
            count = np.nan_to_num(self._board.checkpoint[-1]) + 1
            self._board.checkpoint[:] = size, time.monotonic() - begun, boundary * self._run_schedule.round_steps, count
            self._board.saved[0] = boundary
            return boundary
        return -1

    def report(self, error: OSError, kind: str) -> None:
        """Report an error of the disk, and plan a retry with reopened files."""
        self.retries[kind].postpone(error)
        disk_trouble.log_line(f"Could not write: {error}. The run continues and retries.")
        self._publish_trouble()
        self._files.reopen()

    def _publish_trouble(self) -> None:
        """Publish what the disk refuses now."""
        self._board.trouble[0] = next((retry.error for retry in self.retries.values() if retry.error), 0)
        self._board.records_refused[0] = self.retries["records"].error != 0

    # --- the end

    def close(self) -> None:
        """Record everything due, the last checkpoint and the summary.

        Raises:
            OSError: the disk refuses.
        """
        self._files.require_own_directory()
        boundary = self.save()
        self.retries["evaluations"] = Retry()
        while self._evaluation_due():
            self._record_evaluation()
        if 0 <= boundary < self._board.written[0]:  # the run stopped at its newest snapshot
            self._files.metrics.cut(boundary)
            publish_totals(self._board, self._files.metrics.totals, {})
        summary = make_summary(self._memory, self._files.metrics, boundary, self._machine, self._former)
        self._files.sync()
        write_atomic(self._files.run_dir / SUMMARY_FILE, json.dumps(summary, indent=1).encode())
        self.retries = {kind: Retry() for kind in KINDS}
        self._publish_trouble()


def main(child_spec: ChildSpec) -> None:
    """Record until the last round is committed and evaluated, or the run stops; then write checkpoint and summary.

    Raises:
        FatalError: a checkpoint, metrics or the disk at the end; the message says which.
    """
    memory, waiter = enter(child_spec)
    board, evaluations = memory.board, memory.evaluations
    committer = child_spec.doorbells[memory.plan.committer]
    checkpoint = read_manifest(child_spec.checkpoint) if child_spec.checkpoint and not board.prepared[0] else None
    scribe = Scribe(memory, child_spec.run_dir, child_spec.lock, checkpoint)
    for process in range(len(child_spec.doorbells.fds)):
        child_spec.doorbells[process].ring()
    board.phase[child_spec.process] = Phase.WORKING

    def finished() -> bool:
        is_over = board.finished and evaluations.done.read() >= evaluations.queued.read()
        return is_over and (bool(board.trouble[0]) or not (evaluations.pending or scribe.due()))

    with suppress(Stopped):
        while not finished():
            waiter.wait(lambda: scribe.due() or finished())
            scribe.work()
            waiter.note_progress(int(board.written[0]))
            committer.ring()  # it may wait for the record, or for a free place in the evaluation queue
    _close(scribe, waiter, child_spec.run_dir)
    board.phase[child_spec.process] = Phase.DONE


def _close(scribe: Scribe, waiter: Waiter, run_dir: Path) -> None:
    """Write the last checkpoint and the summary, with retries unless the run was asked to stop.

    Raises:
        FatalError: the disk still refuses after the last retry.
    """
    last_try_at = time.monotonic() + LAST_TRY_SECONDS
    while True:
        try:
            return scribe.close()
        except OSError as error:
            scribe.report(error, "end")
            if time.monotonic() >= last_try_at:
                raise FatalError(disk_trouble.without_checkpoint(error.errno or errno.EIO, run_dir)) from error
        try:
            waiter.wait(lambda: scribe.retries["end"].may_try)
        except Stopped:
            last_try_at = 0.0
