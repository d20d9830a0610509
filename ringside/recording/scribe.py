"""The scribe: the process that records a run. Metrics, TensorBoard events, segments, checkpoints, the summary.

It reads committed ticks from the rings, also when it is late or was killed: the learner waits before lanes overwrite
ticks that are not recorded, unless the disk refuses writes. The scribe works in *spans*, the rounds between two
snapshots. A record has the number of the span's first round.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringside.load.board_samples import LEARNING, NEWEST, Sample
from ringside.recording.metrics import Episode, MetricsLog, cut_metrics, episodes_in, evaluations_in
from ringside.recording.run_files import RunFiles
from ringside.recording.scores import summarize
from ringside.recording.span_values import span_values
from ringside.recording.summary import INEXACT_SINCE, make_summary, run_counters
from shared.checkpoint.best_weights import best_files
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.loading import load_boundary, load_segments
from shared.checkpoint.manifest import Manifest
from shared.checkpoint.segments import segment_shape, segment_ticks
from shared.checkpoint.weights_file import load_weights
from shared.errors import FatalError
from shared.files import disk_trouble
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read
from shared.files.run_file_names import EVALUATION_FILES, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.boundary import Moved, capture, expected, newest_boundary, restore
from shared.memory.parts.board import BEFORE, Phase
from shared.memory.parts.snapshot import PRIORITIES
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.child import ChildSpec, enter

FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""Pause between two attempts to write to a refusing disk; it doubles from the first value up to the second."""
LAST_TRY_SECONDS = 600.0
"""Time limit for retries of the last checkpoint after the last round. A run that is asked to stop retries once."""


class Retry:
    """Time at which something is written again that the disk refused; the pause doubles with each refusal."""

    def __init__(self) -> None:
        self.at = 0.0
        self.error = 0
        """errno of the last refusal; 0: there was none, or it was written since."""
        self._seconds = FIRST_RETRY_SECONDS

    @property
    def may_try(self) -> bool:
        """True once the pause is over."""
        return time.monotonic() >= self.at

    def postpone(self, error: OSError) -> None:
        """Count a refusal."""
        self.at, self.error = time.monotonic() + self._seconds, error.errno or errno.EIO
        self._seconds = min(2 * self._seconds, RETRY_SECONDS)

    def succeed(self) -> None:
        """Forget the refusals."""
        self.at, self.error, self._seconds = 0.0, 0, FIRST_RETRY_SECONDS


class _SpanRecord(NamedTuple):
    """Values and episodes of a span."""

    is_held: bool
    """True if its slots could be read."""
    values: dict[str, float | int | None]
    episodes: list[Episode]


class Scribe:
    """Recorder of one run. Its state can be rebuilt from shared memory and files."""

    def __init__(self, memory: Memory, run_dir: Path, lock: bytes | None = None) -> None:
        """Prepare the memory, unless a former incarnation did; `lock` as for `RunFiles`."""
        self._memory = memory
        self._board = memory.board
        self._run_schedule = memory.run_schedule
        self._config = memory.plan.config
        self._run_dir = run_dir
        self._files = RunFiles(memory, run_dir, self._heartbeat, lock)
        if not self._board.prepared[0]:
            self._prepare()
        self._reported: set[tuple[object, ...]] = set()
        # A refusal of one kind of record delays no other: there may be space for a line, and none for a checkpoint.
        self._spans, self._segments, self._evaluations = Retry(), Retry(), Retry()
        self._checkpoints, self.end = Retry(), Retry()
        self._retries = (self.end, self._spans, self._segments, self._checkpoints, self._evaluations)
        self._has_recorded = False
        """True once this incarnation has recorded a span."""

    # --- preparation

    def _prepare(self) -> None:
        """Prepare the memory of a new or a resumed run, before other roles start to work."""
        run = self._config.run
        if run.resume is not None:
            self._restore(run.resume)
        else:
            # Remove what a run without a checkpoint left in this directory.
            self._files.checkpoints.cut_back(0)
            cut_metrics(self._run_dir / METRICS_FILE, 0)
            if run.init_from is not None:
                self._begin_with_weights(run.init_from)
        (self._run_dir / SUMMARY_FILE).unlink(missing_ok=True)  # the run is unfinished
        self._drop_evaluations(of_versions_from=self._board.committed + 1)
        self._board.written[0] = max(0, self._board.committed)
        self._board.begun_ns[0] = self._board.saved_at_ns[0] = time.monotonic_ns()
        self._board.samples[:] = Sample.take(self._memory, int(self._board.begun_ns[0])).words
        self._board.prepared[0] = 1

    def _restore(self, path: Path) -> None:
        """Restore the run from the newest checkpoint in `path`."""
        manifest = find_checkpoint(path, self._heartbeat)
        manifest.require(self._config)
        past = manifest.evaluations
        arrays = load_boundary(manifest, expected(self._memory, past))
        recorded = 0
        if not self._config.evaluate.eval_every_steps:  # else the queue says it, and the file may be large
            recorded = max(evaluations_in(manifest.run_dir / METRICS_FILE, manifest.boundary), default=-1) + 1
        restore(self._memory, manifest.boundary, arrays, past, recorded)
        load_segments(manifest, self._run_schedule, self._memory.ring.field, self._heartbeat)
        self._adopt(manifest)
        self._publish_statistics(self._files.metrics, {})
        self._board.before[:] = [float(manifest.counters.get(name, 0.0)) for name in BEFORE]
        self._board.inexact_since[0] = self._inexact_since(manifest)

    def _begin_with_weights(self, path: Path) -> None:
        """Let the learner begin with the weights of a file; all else of its state is that of a new run."""
        weights = load_weights(path)
        weights.require(network=self._memory.plan.network, actions=self._memory.plan.actions)

        def fill(out: dict[str, NDArray[np.float32]]) -> None:
            for name in out:
                out[name][:] = weights.flat if name in ("online", "target") else 0.0
            if PRIORITIES in out:
                out[PRIORITIES][-1] = 1.0  # maximum priority before the first update

        self._memory.learner_snapshots.write(0, fill)

    def _drop_evaluations(self, of_versions_from: int) -> None:
        """Remove evaluation files whose version is `of_versions_from` or later, or unknown."""
        for name in EVALUATION_FILES.values():
            version = read_object(self._run_dir / name).get("version")
            if not isinstance(version, int) or not 0 <= version < of_versions_from:
                (self._run_dir / name).unlink(missing_ok=True)

    def _inexact_since(self, manifest: Manifest) -> int:
        """Step from which a resumed run differs bitwise from an undisturbed one; -1: it does not."""
        if INEXACT_SINCE in manifest.counters:
            return int(manifest.counters[INEXACT_SINCE])
        changed = manifest.arithmetic_differences(self._config)
        if changed:
            disk_trouble.log_line(f"The run continues with different arithmetic: {', '.join(changed)}.")
        if not manifest.has_replay:
            disk_trouble.log_line("The run continues without its last round (--no-checkpoint-replay).")
        if changed or not manifest.has_replay:
            return manifest.boundary * self._run_schedule.round_steps
        return -1

    def _adopt(self, manifest: Manifest) -> None:
        """Restore the run directory to its state at the checkpoint's boundary; the checkpoint may be of another
        directory."""
        source_dir, checkpoints = manifest.run_dir, self._files.checkpoints  # creates their directory
        if source_dir.resolve() == self._run_dir.resolve():
            self._board.saved[0] = manifest.boundary
        else:
            copies = {path: checkpoints.directory / path.name for path in best_files(manifest.directory)}
            if os.path.lexists(source_dir / METRICS_FILE):
                copies[source_dir / METRICS_FILE] = self._run_dir / METRICS_FILE
            for source, target in copies.items():
                with open_to_read(source) as file:
                    write_atomic(target, partial(shutil.copyfileobj, file))
        checkpoints.adopt(manifest)
        checkpoints.cut_back(manifest.boundary)
        cut_metrics(self._run_dir / METRICS_FILE, manifest.boundary)

    def _heartbeat(self) -> None:
        """Heartbeat during long operations."""
        self._board.record_heartbeat(Role.SCRIBE)

    # --- due work

    def due(self) -> bool:
        """True if something is due to be recorded."""
        return self._spans_due() or self._evaluation_due() or self._save_due()

    def _spans_due(self) -> bool:
        return bool(self._spans.may_try and self._board.written[0] < newest_boundary(self._memory))

    def _evaluation_due(self) -> bool:
        evaluations = self._memory.evaluations
        return bool(self._evaluations.may_try and evaluations.logged.read() < evaluations.done.read())

    def _save_due(self) -> bool:
        every = self._config.run.checkpoint_every_minutes * 60e9
        behind = self._board.saved[0] < newest_boundary(self._memory)
        # The board keeps the moment: a scribe that dies in every checkpoint tries it first when it starts again, so its
        # deaths count as in a row.
        return bool(behind and self._checkpoints.may_try and time.monotonic_ns() - self._board.saved_at_ns[0] >= every)

    # --- writing

    def work(self) -> None:
        """Record the most urgent thing that is due. What the disk refuses is reported and tried again later."""
        if self._evaluation_due() and self._record(self._evaluations, self._record_evaluation):
            return
        if self._save_due() and self._record(self._checkpoints, lambda: self.save() >= 0):
            return
        if self._spans_due():  # the last, since with short rounds one is always due
            self._record(self._spans, self._record_span)

    def _record(self, retry: Retry, record: Callable[[], bool]) -> bool:
        """Return what `record` does: False if it can record nothing now. Also False if the disk refuses."""
        try:
            self._files.require_own_directory()
            recorded = record()
        except OSError as error:
            self.report(error, retry)
            return False
        self._publish_trouble()
        return recorded

    def _publish_trouble(self) -> None:
        """Publish what the disk refuses now."""
        self._board.trouble[0] = next((retry.error for retry in self._retries if retry.error), 0)
        self._board.spans_refused[0] = self._spans.error != 0

    def _oldest_readable_tick(self) -> int:
        """Oldest tick that no lane can overwrite now."""
        return self._run_schedule.oldest_readable_tick(self._board.committed)

    def _record_span(self) -> bool:
        """Record the next span: metrics, events and, of a replay, its segment. Return True.

        Raises:
            OSError: the disk refuses; the whole span is retried.
        """
        self._heartbeat()  # a checkpoint may record many spans first
        if not self._has_recorded:
            self._drop_evaluations(of_versions_from=0)  # newer weights will follow
            self._has_recorded = True
        log, events = self._files.metrics, self._files.events
        run_schedule, first = self._run_schedule, int(self._board.written[0])
        stop = first + run_schedule.snapshot_rounds
        begin, steps = first * run_schedule.round_ticks, stop * run_schedule.round_steps
        sample = Sample.take(self._memory, time.monotonic_ns())
        is_held, values, episodes = self._read_span(begin, stop, sample)
        log.log_round(first, steps, values, episodes, run_schedule.envs)
        events.round(steps, values | {"mean_return_100": log.totals.mean_return_100}, episodes, run_schedule.envs)
        if is_held and self._config.run.checkpoint_replay and not run_schedule.method.on_policy:
            self._add_segment_of_span(begin)
        self._publish_statistics(log, values)
        if first < run_schedule.first_learning_round <= stop:
            self._board.samples[LEARNING] = sample.words
        self._board.samples[NEWEST] = sample.words
        self._board.written[0] = stop
        self._spans.succeed()
        return True

    def _read_span(self, begin: int, stop: int, sample: Sample) -> _SpanRecord:
        """The record of the span from tick `begin` to boundary `stop`.

        After a long disk error the lanes may have overwritten the slots, or do so during the read.
        """
        if begin >= self._oldest_readable_tick():
            episodes = episodes_in(self._memory.ring.field, begin, stop * self._run_schedule.round_ticks)
            values = span_values(self._memory, stop, sample, held=True)
            if begin >= self._oldest_readable_tick():
                return _SpanRecord(is_held=True, values=values, episodes=episodes)
        return _SpanRecord(is_held=False, values=span_values(self._memory, stop, sample, held=False), episodes=[])

    def _add_segment_of_span(self, begin: int) -> None:
        """Add the segment of the span from tick `begin` on. Of one that is refused the next checkpoint tries again."""
        if not self._segments.may_try:
            return
        try:
            with suppress(Moved):  # then it has left the replay window, too
                self._add_segment(begin // segment_ticks(self._run_schedule), needed_from=begin)
            self._segments.succeed()
        except OSError as error:
            self.report(error, self._segments)

    def _add_segment(self, index: int, needed_from: int) -> None:
        """Compress a segment of which the ticks from `needed_from` are needed.

        Raises:
            Moved: lanes overwrote it during compression; the segment is deleted.
        """
        self._heartbeat()
        self._files.checkpoints.add_segment(index, self._memory.ring.field)
        if needed_from < self._oldest_readable_tick():
            self._files.checkpoints.discard_segment(index)
            raise Moved(f"Segment {index} was overwritten during compression.")

    def _publish_statistics(self, log: MetricsLog, values: Mapping[str, float | int | None]) -> None:
        """Publish totals of all records, and values for the display, on the board."""
        self._board.outside_support[0] = _or_nan(values.get("outside_support"))
        self._board.episodes[0] = log.totals.episodes
        self._board.mean_return_100[0] = _or_nan(log.totals.mean_return_100)
        self._board.best_return[0] = _or_nan(log.totals.best_return)
        if log.totals.evaluation is not None:
            self._board.evaluation[:] = astuple(log.totals.evaluation)

    def _record_evaluation(self) -> bool:
        """Record the next evaluation, and save its version if it is the best so far. Return True."""
        queue, number = self._memory.evaluations, self._memory.evaluations.logged.read()
        place = number % len(queue.returns)
        returns, lengths = queue.returns[place], queue.lengths[place]
        steps = int(queue.step[place])
        figures = summarize(self._config.play.played, returns)
        values: dict[str, float | int | str | None] = {
            "episodes": figures.episodes,
            "mean_return": figures.mean,
            "std_return": figures.sd,
            "median_return": figures.median,
            "best_return": figures.best,
            "human_normalized": figures.human_normalized,
            "mean_length": float(lengths.mean()),
            "protocol": self._config.play.protocol,
        }
        boundary = steps // self._run_schedule.round_steps
        best = np.fmax(self._board.evaluation[-1], figures.mean)
        self._board.evaluation[:] = steps, figures.episodes, figures.mean, best  # even if the disk refuses it
        self._files.metrics.log_evaluation(number, boundary, steps, values)
        self._files.events.evaluation(steps, values)
        self._files.checkpoints.save_best(queue.data[place], boundary, figures.mean, newest_boundary(self._memory))
        queue.logged.publish(number + 1)
        self._evaluations.succeed()
        return True

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
                    self._record_span()
                oldest = self._run_schedule.oldest_needed_tick(boundary)
                for index in self._files.checkpoints.missing_segments(boundary):
                    self._add_segment(index, max(oldest, segment_shape(self._run_schedule).first_tick(index)))
            except Moved:
                continue
            self._files.metrics.sync()
            weights = np.asarray(arrays["online"], np.float32)
            size = self._files.checkpoints.save(boundary, arrays, weights, run_counters(self._memory))
            self._board.saved_at_ns[0] = time.monotonic_ns()
            count = np.nan_to_num(self._board.checkpoint[-1]) + 1
            self._board.checkpoint[:] = size, time.monotonic() - begun, boundary * self._run_schedule.round_steps, count
            self._board.saved[0] = boundary
            self._checkpoints.succeed()
            return boundary
        return -1

    def report(self, error: OSError, retry: Retry) -> None:
        """Report an error of the disk, once for each kind and directory, and plan a retry with reopened files."""
        retry.postpone(error)
        self._publish_trouble()
        self._files.reopen()
        kind = (error.errno, error.strerror, os.path.dirname(str(error.filename)))  # a temporary file has a new name
        if kind not in self._reported:
            self._reported.add(kind)
            disk_trouble.log_line(f"Could not write: {error}. The run continues and retries.")

    # --- the end

    def close(self) -> None:
        """Record everything due, the last checkpoint and the summary.

        Raises:
            OSError: the disk refuses.
        """
        self._files.require_own_directory()
        boundary = self.save()
        self._evaluations.succeed()
        while self._evaluation_due():
            self._record_evaluation()
        summary = make_summary(self._memory, self._files.metrics, boundary)
        write_atomic(self._run_dir / SUMMARY_FILE, json.dumps(summary, indent=1).encode())
        for retry in self._retries:
            retry.succeed()
        self._publish_trouble()


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def main(child_spec: ChildSpec) -> None:
    """Record until the last round is committed and evaluated, or the run stops; then write checkpoint and summary.

    Raises:
        FatalError: a checkpoint, metrics or the disk at the end; the message says which.
    """
    memory, waiter = enter(child_spec)
    board, evaluations = memory.board, memory.evaluations
    committer = child_spec.doorbells[memory.plan.committer]
    scribe = Scribe(memory, child_spec.run_dir, child_spec.lock)
    for process in range(len(child_spec.doorbells.fds)):
        child_spec.doorbells[process].ring()
    board.phase[child_spec.process] = Phase.WORKING

    def finished() -> bool:
        if not board.finished or evaluations.done.read() < evaluations.queued.read():
            return False
        return bool(board.trouble[0]) or not (evaluations.pending or scribe.due())

    try:
        while not finished():
            waiter.wait(lambda: scribe.due() or finished())
            scribe.work()
            waiter.note_progress(int(board.written[0]))
            committer.ring()  # it may wait for the record, or for a free place in the evaluation queue
    except Stopped:
        pass
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
            scribe.close()
            return
        except OSError as error:
            scribe.report(error, scribe.end)
            if time.monotonic() >= last_try_at:
                raise FatalError(disk_trouble.without_checkpoint(error.errno or errno.EIO, run_dir)) from error
        try:
            waiter.wait(lambda: scribe.end.may_try)
        except Stopped:
            last_try_at = 0.0
