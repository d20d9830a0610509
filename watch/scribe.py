"""The scribe: the process that writes everything down. Metrics, TensorBoard events, segments, checkpoints, the summary.

It reads what is committed and never holds anybody up: when it is late or was killed, it finds the newest rounds in the
rings and goes on from there. It works in *spans*, the rounds between two snapshots: with all schedules but `alternate`
a span is one round, and the number of a record's round is that of the span's first.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared import machine
from shared.board import METRIC_SPANS, METRICS, Phase, Role
from shared.boundary import Moved, capture, newest_boundary, restore
from shared.checkpoint import CheckpointWriter
from shared.config import FRAME_SKIP
from shared.files import write_atomic
from shared.manifest import find_checkpoint, load_boundary, load_segments, load_weights
from shared.memory import Memory
from shared.process import FATAL, Birth, enter
from shared.segments import CheckpointError, segment_ticks
from shared.snapshot import STATE_NAMES
from shared.wait import Stopped
from watch.metrics import Episode, EventLog, MetricsError, MetricsLog, cut_metrics, episodes_in
from watch.scores import summarise

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
        self._log = MetricsLog(run_dir / "metrics.jsonl")
        self._tell_statistics()
        self._events = EventLog(run_dir / "tensorboard", int(self._board.written[0]) * memory.sizes.round_steps)
        self._said: set[str] = set()
        self._saved_at = self._span_at = time.monotonic()
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
            self._writer.adopt(manifest)
            self._writer.cut_back(manifest.boundary)
            cut_metrics(self._run_dir / "metrics.jsonl", manifest.boundary)
            self._board.seconds_before[0] = float(manifest.counters.get("seconds", 0.0))
        elif run.init_from is not None:
            weights = load_weights(run.init_from)
            weights.require(network=self._config.learn.network, actions=self._memory.plan.actions)

            def fill(out: dict[str, NDArray[np.float32]]) -> None:
                for name in STATE_NAMES:
                    out[name][:] = weights.flat if name in ("online", "target") else 0.0

            self._memory.learner_snapshots.write(0, fill)
        self._board.written[0] = self._board.committed + 1
        self._board.saved[0] = self._board.committed + 1 if run.resume is not None else -1
        self._board.begun_ns[0] = time.monotonic_ns()
        self._board.prepared[0] = 1

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
        if self._spans_due():
            self._span(int(self._board.written[0]))
        elif self._evaluation_due():
            self._evaluation(int(self._memory.evaluations.logged[0]))
        elif self._save_due():
            self.save()

    def _span(self, first: int) -> None:
        """Metrics, events and the segment of the span that begins with round `first`."""
        sizes, stop = self._sizes, first + self._sizes.snapshot_rounds
        ticks = (first * sizes.round_ticks, stop * sizes.round_ticks)
        steps = stop * sizes.round_steps
        ring = self._memory.ring.field
        # A scribe that was away too long: the lanes have written over what it would have read.
        held = self._board.committed * sizes.round_ticks - sizes.window_ticks
        episodes: list[Episode] = episodes_in(ring, *ticks) if ticks[0] >= held else []
        values = self._values(stop)
        try:
            self._log.log_round(first, steps, values, episodes, sizes.envs)
            self._events.round(steps, values | {"mean_return_100": self._log.mean_return_100}, episodes, sizes.envs)
            if ticks[0] >= held and self._config.run.checkpoint_replay:
                self._writer.add_segment(ticks[0] // segment_ticks(sizes), ring)
        except OSError as error:
            self._report(error)
            return
        self._tell_statistics()
        self._board.written[0] = stop

    def _tell_statistics(self) -> None:
        """Put the statistics of all episodes on the board, for the display."""
        self._board.episodes[0] = self._log.episodes
        self._board.mean_return_100[0] = _or_nan(self._log.mean_return_100)
        self._board.best_return[0] = _or_nan(self._log.best_return)

    def _values(self, stop: int) -> dict[str, float | int]:
        """What is known of the span before boundary `stop`, besides its episodes."""
        sizes, now = self._sizes, time.monotonic()
        seconds, self._span_at = now - self._span_at, now
        steps = sizes.snapshot_rounds * sizes.round_steps
        row = self._board.metrics[(stop // sizes.snapshot_rounds - 1) % METRIC_SPANS]
        known: dict[str, float | int] = {name: float(value) for name, value in zip(METRICS, row, strict=True)}
        updates = sizes.updates_before(stop) - sizes.updates_before(stop - sizes.snapshot_rounds)
        ticks = stop * sizes.round_ticks
        slots = np.arange(ticks - sizes.snapshot_rounds * sizes.round_ticks, ticks) % sizes.capacity
        return known | {
            "frames": stop * sizes.round_steps * FRAME_SKIP,
            "valid_steps": int(self._memory.ring.field["valid"][:, slots].sum()),
            "updates": sizes.updates_before(stop),
            "epsilon": sizes.epsilon(ticks, self._config.explore),
            "samples_per_step": updates * self._config.learn.batch_size / steps,
            "seconds": self.seconds(),
            "steps_per_second": steps / seconds,
            "frames_per_second": steps * FRAME_SKIP / seconds,
            "updates_per_second": updates / seconds,
        }

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
        try:
            self._log.log_evaluation(number, boundary, steps, values)
            self._events.evaluation(steps, values)
            self._writer.save_best(queue.data[place], boundary, figures.mean)
        except OSError as error:
            self._report(error)
            return
        queue.logged[0] = number + 1

    def save(self) -> bool:
        """Write a checkpoint of the newest boundary; returns whether that succeeded."""
        for _ in range(3):  # a capture can only fail when a whole round passed meanwhile
            boundary = newest_boundary(self._memory)
            if boundary < 0 or boundary <= self._board.saved[0]:
                return boundary >= 0
            try:
                arrays = capture(self._memory, boundary)
                for index in self._writer.missing_segments(boundary):
                    self._writer.add_segment(index, self._memory.ring.field)
                self._log.sync()
                weights = np.asarray(arrays["online"], np.float32)
                self._writer.save(boundary, arrays, weights, {"seconds": self.seconds()})
            except Moved:
                continue
            except OSError as error:
                self._report(error)
                return False
            self._saved_at = time.monotonic()
            self._board.saved[0] = boundary
            self._board.trouble[0] = 0
            return True
        return False

    def _report(self, error: OSError) -> None:
        """Note a trouble with the disk, once for each kind, and try again later."""
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._board.trouble[0] = error.errno or 1
        if str(error) not in self._said:
            self._said.add(str(error))
            print(f"Could not write: {error}. Training goes on; it is tried again.", file=sys.stderr, flush=True)

    # --- the end

    def seconds(self) -> float:
        """Seconds that the run has taken, former sittings included."""
        sitting = (time.monotonic_ns() - int(self._board.begun_ns[0])) / 1e9
        return float(self._board.seconds_before[0]) + sitting

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds: of the newest boundary that has snapshots."""
        sizes, board, config = self._sizes, self._board, self._config
        boundary = newest_boundary(self._memory)
        state = self._memory.learner_snapshots.read(boundary)
        assert state is not None, "nobody works any more, and the newest boundary has its snapshots"
        steps, updates, seconds = boundary * sizes.round_steps, sizes.updates_before(boundary), self.seconds()
        learning = steps - sizes.first_learning_round * sizes.round_steps
        return {
            "game": config.play.env or config.play.game,
            "steps": steps,
            "frames": steps * FRAME_SKIP,
            "updates": updates,
            "samples_per_step": updates * config.learn.batch_size / learning if learning > 0 else 0.0,
            "rounds": boundary,
            "finished": board.finished,
            "episodes": self._log.episodes,
            "mean_return_100": self._log.mean_return_100,
            "best_return": self._log.best_return,
            "seconds": seconds,
            "steps_per_second": steps / seconds,
            "weights_sha256": hashlib.sha256(state["online"].tobytes()).hexdigest(),
            "config_digest": config.digest(),
            "protocol": config.play.protocol,
            "schedule": config.learn.schedule,
            "device": config.machine.device,
            "precision": config.machine.precision,
            "actors": config.machine.actors,
            "seed": config.run.seed,
            "restarts": int(board.restarts.sum()),
            "redone_ticks": int(board.redone[Role.ACTORS :].sum()),
            "redone_updates": int(board.redone[Role.LEARNER]),
            "learner_barrier_seconds": float(board.barrier_ns[0]) / 1e9,
            "machine": machine.describe(),
        }

    def close(self) -> bool:
        """Last checkpoint and summary; returns whether both were written."""
        while self._spans_due() or self._evaluation_due():
            self.work()
        if newest_boundary(self._memory) < 0:
            return True
        saved = self.save()
        try:
            write_atomic(self._run_dir / "summary.json", json.dumps(self.summary(), indent=1).encode())
        except OSError as error:
            self._report(error)
            return False
        return saved


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def main(birth: Birth) -> None:
    """Write down until the last round is committed and evaluated, or the run stops; then the checkpoint and summary."""
    memory, waiter = enter(birth)
    board = memory.board
    try:
        scribe = Scribe(memory, birth.run_dir)
    except (CheckpointError, MetricsError) as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(FATAL)
    for process in range(len(birth.bells.fds)):
        birth.bells.of(process).ring()
    board.phase[birth.process] = Phase.WORKING

    def finished() -> bool:
        return board.finished and not memory.evaluations.pending and not scribe.due()

    try:
        while not finished():
            waiter.wait(lambda: scribe.due() or finished())
            scribe.work()
            waiter.furthest(int(board.written[0]))
            birth.bells.of(Role.LEARNER).ring()  # which waits for a place in the queue of evaluations
    except Stopped:
        pass
    if not scribe.close():
        sys.exit(FATAL)
    board.phase[birth.process] = Phase.DONE
