"""The scribe: the process that writes everything down. Metrics, TensorBoard events, segments, checkpoints, the summary.

It reads what is committed and never holds anybody up: when it is late or was killed, it finds the newest rounds in the
rings and goes on from there. It works in *spans*, the rounds between two snapshots: with all schedules but `alternate`
a span is one round, and the number of a record's round is that of the span's first.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.board import BEFORE, METRIC_SPANS, METRICS, Phase, Role
from shared.boundary import Moved, capture, newest_boundary, restore
from shared.checkpoint import CheckpointWriter
from shared.config import FRAME_SKIP
from shared.errors import Unmendable
from shared.files import write_atomic
from shared.manifest import DIRECTORY, Manifest, find_checkpoint, load_boundary, load_segments, load_weights
from shared.memory import Memory
from shared.process import Birth, enter
from shared.segments import segment_ticks
from shared.wait import Stopped
from watch.load import LEARNING, NEWEST, Sample, roles_between
from watch.metrics import Episode, EventLog, MetricsLog, cut_metrics, episodes_in
from watch.scores import summarise
from watch.status import busy_by_group
from watch.summary import counters_of, summary_of

RETRY_SECONDS = 30.0
"""Between two tries to write when the first failed (a full disk)."""


class Scribe:
    """What the scribe knows of the run: all of it is to be found again in memory or files."""

    def __init__(self, memory: Memory, run_dir: Path) -> None:
        self._memory = memory
        self._board = memory.board
        self._sizes = memory.sizes
        self._config = memory.plan.config
        self._run_dir = run_dir
        self._writer = CheckpointWriter(run_dir, self._config, memory.sizes, memory.plan.actions)
        if not self._board.prepared[0]:
            self._prepare()
        self._logs: tuple[MetricsLog, EventLog] | None = None
        self._said: set[str] = set()
        self._saved_at = time.monotonic()
        self._retry_at = 0.0

    # --- beginnings

    def _prepare(self) -> None:
        """Before anybody works: an empty run, or one from a checkpoint or from given weights."""
        run = self._config.run
        if run.resume is not None:
            manifest = find_checkpoint(run.resume)
            manifest.require(self._config)
            for sentence in manifest.refused:
                print(sentence, file=sys.stderr)
            restore(self._memory, manifest.boundary, load_boundary(manifest))
            load_segments(manifest, self._sizes, self._memory.ring.field)
            self._adopt(manifest)
            self._board.before[:] = [float(manifest.counters.get(name, 0.0)) for name in BEFORE]
        else:
            # What a run that never came to a checkpoint left in this directory.
            self._writer.cut_back(0)
            cut_metrics(self._run_dir / "metrics.jsonl", 0)
        if run.init_from is not None and run.resume is None:
            weights = load_weights(run.init_from)
            weights.require(network=self._config.learn.network, actions=self._memory.plan.actions)

            def fill(out: dict[str, NDArray[np.float32]]) -> None:
                for name in out:
                    out[name][:] = weights.flat if name in ("online", "target") else 0.0

            self._memory.learner_snapshots.write(0, fill)
        self._board.written[0] = max(0, self._board.committed)
        self._board.begun_ns[0] = time.monotonic_ns()
        self._board.samples[:] = Sample.take(self._memory, int(self._board.begun_ns[0])).words
        self._board.prepared[0] = 1

    def _adopt(self, manifest: Manifest) -> None:
        """Make the run's directory what it was at the checkpoint's boundary, be it there or elsewhere."""
        former = manifest.directory.parent
        if former.resolve() == self._run_dir.resolve():
            self._board.saved[0] = manifest.boundary
        else:
            for name in ("metrics.jsonl", f"{DIRECTORY}/best.safetensors"):
                if (former / name).exists():
                    shutil.copyfile(former / name, self._run_dir / name)
        self._writer.adopt(manifest)
        self._writer.cut_back(manifest.boundary)
        cut_metrics(self._run_dir / "metrics.jsonl", manifest.boundary)

    # --- looking

    def due(self) -> bool:
        """Whether something waits to be written down."""
        return self._spans_due() or self._evaluation_due() or self._save_due()

    def _spans_due(self) -> bool:
        return bool(self._may_try() and self._board.written[0] < newest_boundary(self._memory))

    def _evaluation_due(self) -> bool:
        evaluations = self._memory.evaluations
        return bool(self._may_try() and evaluations.logged[0] < evaluations.done[0])

    def _save_due(self) -> bool:
        every = self._config.run.checkpoint_every_minutes * 60.0
        behind = self._board.saved[0] < newest_boundary(self._memory)
        return bool(behind and self._may_try() and time.monotonic() - self._saved_at >= every)

    def _may_try(self) -> bool:
        """Whether the disk is not in trouble, or was so long ago."""
        return time.monotonic() >= self._retry_at

    # --- writing

    def work(self) -> None:
        """Write down one thing that is due. Troubles with the disk are reported and tried again."""
        try:
            if self._spans_due():
                self._span(int(self._board.written[0]))
            elif self._evaluation_due():
                self._evaluation(int(self._memory.evaluations.logged[0]))
            elif self._save_due():
                self.save()
            self._board.trouble[0] = 0
        except OSError as error:
            self._report(error)

    def _open_logs(self) -> tuple[MetricsLog, EventLog]:
        """The metrics and the events, opened when the disk allows it."""
        if self._logs is None:
            log = MetricsLog(self._run_dir / "metrics.jsonl")
            steps = int(self._board.written[0]) * self._sizes.round_steps
            self._logs = log, EventLog(self._run_dir / "tensorboard", steps)
        return self._logs

    def _held_from(self) -> int:
        """The oldest tick that nobody can be writing over: lanes play a round beyond the commit, with `free` two."""
        return (self._board.committed + self._sizes.ahead) * self._sizes.round_ticks + 1 - self._sizes.capacity

    def _span(self, first: int) -> None:
        """Metrics, events and the segment of the span that begins with round `first`.

        Raises:
            OSError: the disk refuses; nothing is forgotten, and all of it is tried again.
        """
        log, events = self._open_logs()
        sizes, stop = self._sizes, first + self._sizes.snapshot_rounds
        begin, end = first * sizes.round_ticks, stop * sizes.round_ticks
        steps = stop * sizes.round_steps
        ring = self._memory.ring.field
        # A scribe that was away for too long: the lanes have written over what it would have read.
        held = begin >= self._held_from()
        episodes: list[Episode] = episodes_in(ring, begin, end) if held else []
        sample = Sample.take(self._memory, time.monotonic_ns())
        values = self._values(stop, held=held) | self._busy_shares(sample)
        log.log_round(first, steps, values, episodes, sizes.envs)
        events.round(steps, values | {"mean_return_100": log.mean_return_100}, episodes, sizes.envs)
        if held and self._config.run.checkpoint_replay:
            with suppress(Moved):  # then it has left the window, too
                self._add_segment(begin // segment_ticks(sizes), needed_from=begin)
        self._tell_statistics(log)
        if first < sizes.first_learning_round <= stop:
            self._board.samples[LEARNING] = sample.words
        self._board.samples[NEWEST] = sample.words
        self._board.written[0] = stop

    def _add_segment(self, index: int, needed_from: int) -> None:
        """Compress a segment whose ticks from `needed_from` on are needed.

        Raises:
            Moved: lanes wrote over it meanwhile; what was compressed is of no use and is deleted.
        """
        self._board.beat(Role.SCRIBE)
        self._writer.add_segment(index, self._memory.ring.field)
        if needed_from < self._held_from():
            self._writer.discard_segment(index)
            raise Moved(f"Segment {index} was written over while it was compressed.")

    def _tell_statistics(self, log: MetricsLog) -> None:
        """Put the statistics of all episodes on the board, for the display."""
        self._board.episodes[0] = log.episodes
        self._board.mean_return_100[0] = _or_nan(log.mean_return_100)
        self._board.best_return[0] = _or_nan(log.best_return)

    def _values(self, stop: int, *, held: bool) -> dict[str, float | int | None]:
        """What is known of the span before boundary `stop`, besides its episodes."""
        sizes = self._sizes
        steps = sizes.snapshot_rounds * sizes.round_steps
        updates = sizes.updates_before(stop) - sizes.updates_before(stop - sizes.snapshot_rounds)
        ticks = (stop - sizes.snapshot_rounds) * sizes.round_ticks, stop * sizes.round_ticks
        values: dict[str, float | int | None] = {
            "frames": stop * sizes.round_steps * FRAME_SKIP,
            "updates": sizes.updates_before(stop),
            "epsilon": sizes.epsilon(ticks[1], self._config.explore),
            "samples_per_step": updates * self._config.learn.batch_size / steps,
            "valid_steps": None,
        }
        if held:
            slots = np.arange(*ticks) % sizes.capacity
            values["valid_steps"] = int(self._memory.ring.field["valid"][:, slots].sum())
        span = stop // sizes.snapshot_rounds - 1
        behind = self._board.committed // sizes.snapshot_rounds - span
        if behind < METRIC_SPANS:  # else the learner has used the row for another span
            row = dict(zip(METRICS, self._board.metrics[span % METRIC_SPANS].tolist(), strict=True))
            former = float(self._board.metrics[(span - 1) % METRIC_SPANS][METRICS.index("committed_at")])
            begun = float(self._board.begun_ns[0]) / 1e9
            at = row["committed_at"]
            # The first span of a sitting began with the sitting.
            seconds = at - (former if begun < former < at else begun)
            values |= {name: row[name] for name in ("loss", "mean_q", "gradient_norm")}
            values |= {
                "seconds": float(self._board.before[0]) + at - begun,
                "steps_per_second": steps / seconds,
                "frames_per_second": steps * FRAME_SKIP / seconds,
                "updates_per_second": row["updates"] / seconds,  # counted, where the rest follows from the clock
            }
        return values

    def _busy_shares(self, sample: Sample) -> dict[str, float | None]:
        """Busy share of each group of roles since the newest record (watch/load.py says what that means)."""
        shares = busy_by_group(roles_between(self._memory, Sample(self._board.samples[NEWEST]), sample))
        return {f"{group}_busy": shares.get(group) for group in ("learner", "inference", "actors")}

    def _evaluation(self, number: int) -> None:
        """The returns of an evaluation, and its version if it is the best so far."""
        queue = self._memory.evaluations
        place = number % len(queue.returns)
        returns, lengths = queue.returns[place], queue.lengths[place]
        steps = int(queue.step[place])
        figures = summarise(self._config.play.env or self._config.play.game, returns)
        values: dict[str, float | int | str | None] = {
            "episodes": figures.episodes,
            "mean_return": figures.mean,
            "std_return": figures.sd,
            "median_return": figures.median,
            "best_return": figures.best,
            "human_normalised": figures.human_normalised,
            "mean_length": float(lengths.mean()),
            "protocol": self._config.play.protocol,
        }
        boundary = steps // self._sizes.round_steps
        log, events = self._open_logs()
        log.log_evaluation(number, boundary, steps, values)
        events.evaluation(steps, values)
        self._writer.save_best(queue.data[place], boundary, figures.mean)
        queue.logged[0] = number + 1

    def save(self) -> int:
        """Write a checkpoint of the newest boundary and return that; -1: there is none yet, or it moved on too fast.

        Raises:
            OSError: the disk refuses; older checkpoints are untouched.
        """
        for _ in range(3):  # a capture can only fail when a whole round passed meanwhile
            boundary = newest_boundary(self._memory)
            if boundary < 0 or boundary <= self._board.saved[0]:
                return boundary
            try:
                while self._board.written[0] < boundary:
                    self._span(int(self._board.written[0]))
                arrays = capture(self._memory, boundary)
                window_from = boundary * self._sizes.round_ticks - self._sizes.window_ticks
                for index in self._writer.missing_segments(boundary):
                    self._add_segment(index, max(window_from, index * segment_ticks(self._sizes)))
            except Moved:
                continue
            self._open_logs()[0].sync()
            weights = np.asarray(arrays["online"], np.float32)
            self._writer.save(boundary, arrays, weights, counters_of(self._board))
            self._saved_at = time.monotonic()
            self._board.saved[0] = boundary
            return boundary
        return -1

    def _report(self, error: OSError) -> None:
        """Note a trouble with the disk, once for each kind, and try again later."""
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._board.trouble[0] = error.errno or 1
        if str(error) not in self._said:
            self._said.add(str(error))
            with suppress(OSError):  # the log lies on the same disk
                print(f"Could not write: {error}. Training goes on; it is tried again.", file=sys.stderr, flush=True)

    # --- the end

    def close(self) -> None:
        """The rest of what is due, the last checkpoint and the summary.

        Raises:
            OSError: the disk refuses.
        """
        self._retry_at = 0.0
        boundary = self.save()
        while self._evaluation_due():
            self._evaluation(int(self._memory.evaluations.logged[0]))
        log, _ = self._open_logs()
        write_atomic(
            self._run_dir / "summary.json", json.dumps(summary_of(self._memory, log, boundary), indent=1).encode()
        )


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def main(birth: Birth) -> None:
    """Write down until the last round is committed and evaluated, or the run stops; then checkpoint and summary.

    Raises:
        Unmendable: a checkpoint, metrics or the disk at the end; the message says which.
    """
    memory, waiter = enter(birth)
    board, evaluations = memory.board, memory.evaluations
    scribe = Scribe(memory, birth.run_dir)
    for process in range(len(birth.bells.fds)):
        birth.bells.of(process).ring()
    board.phase[birth.process] = Phase.WORKING

    def finished() -> bool:
        if not board.finished or evaluations.done[0] < evaluations.queued[0]:
            return False
        return bool(board.trouble[0]) or not (evaluations.pending or scribe.due())

    try:
        while not finished():
            waiter.wait(lambda: scribe.due() or finished())
            scribe.work()
            waiter.furthest(int(board.written[0]))
            birth.bells.of(Role.LEARNER).ring()  # which may wait for a place in the queue of evaluations
    except Stopped:
        pass
    try:
        scribe.close()
    except OSError as error:
        raise Unmendable(f"The last checkpoint or the summary could not be written: {error}.") from error
    board.phase[birth.process] = Phase.DONE
