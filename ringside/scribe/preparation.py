"""Preparation of a run's memory by the scribe: from a checkpoint, from weights, or from nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringside.load.board_samples import Sample
from ringside.recording.metrics import cut_metrics, next_evaluation
from ringside.recording.summary import INEXACT_SINCE
from ringside.recording.totals import Totals
from ringside.scribe.run_files import RunFiles
from shared.checkpoint.best_weights import best_files
from shared.checkpoint.loading import load_boundary, load_segments
from shared.checkpoint.manifest import Manifest
from shared.checkpoint.weights_file import load_weights
from shared.files import disk_trouble
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read
from shared.files.run_file_names import EVALUATION_FILES, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.boundary import captured_arrays, restore
from shared.memory.parts.board import BEFORE, Board
from shared.memory.parts.snapshot import PRIORITIES
from shared.memory.run_memory import Memory


class Preparation:
    """Prepares the memory and the directory of a new or a resumed run."""

    def __init__(
        self,
        memory: Memory,
        files: RunFiles,
        run_dir: Path,
        heartbeat: Callable[[], None],
        checkpoint: Manifest | None = None,
    ) -> None:
        """`heartbeat` is called during long operations; `checkpoint` is the verified one that is resumed."""
        self._checkpoint = checkpoint
        self._memory, self._files, self._run_dir, self._heartbeat = memory, files, run_dir, heartbeat
        self._board, self._run_schedule, self._config = memory.board, memory.run_schedule, memory.plan.config

    def prepare(self) -> None:
        """Prepare the memory, before other roles start to work.

        Raises:
            CheckpointError: the run cannot be resumed. OSError: the disk refuses.
        """
        if self._checkpoint is not None:
            self._restore(self._checkpoint)
        else:
            # Remove what a run without a checkpoint left in this directory.
            self._files.checkpoints.cut_back(0)
            cut_metrics(self._run_dir / METRICS_FILE, 0)
            if self._config.run.init_from is not None:
                self._begin_with_weights(self._config.run.init_from)
        if not self._memory.plan.env_repeats:
            self._board.lane_inexact[:] = max(0, self._board.committed) * self._run_schedule.round_steps
        (self._run_dir / SUMMARY_FILE).unlink(missing_ok=True)  # the run is unfinished
        drop_evaluations(self._run_dir, of_versions_from=self._board.committed + 1)
        self._board.written[0] = max(0, self._board.committed)
        self._board.begun_ns[0] = self._board.saved_at_ns[0] = time.monotonic_ns()
        self._board.samples[:] = Sample.take(self._memory, int(self._board.begun_ns[0])).words
        self._board.prepared[0] = 1

    def _restore(self, manifest: Manifest) -> None:
        """Restore the run from a checkpoint."""
        past = manifest.evaluations
        arrays = load_boundary(manifest, captured_arrays(self._memory, past))
        recorded = 0
        if not self._config.evaluate.eval_every_steps:  # else the queue says it, and the file may be large
            recorded = next_evaluation(manifest.run_dir / METRICS_FILE, manifest.boundary)
        restore(self._memory, manifest.boundary, arrays, past, recorded)
        load_segments(manifest, self._run_schedule, self._memory.ring.field, self._heartbeat)
        if self._config.play.env is not None:
            first = self._run_schedule.window_begin(manifest.boundary)
            self._memory.ring.end_cut_episodes(first, manifest.boundary * self._run_schedule.round_ticks)
        self._adopt(manifest)
        publish_totals(self._board, self._files.metrics.totals, {})
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
            checkpoints.cut_back(0)  # what a run without a checkpoint left in this directory
            copies = {path: checkpoints.directory / path.name for path in best_files(manifest.directory)}
            if os.path.lexists(source_dir / METRICS_FILE):
                copies[source_dir / METRICS_FILE] = self._run_dir / METRICS_FILE
            for source, target in copies.items():
                with open_to_read(source) as file:
                    write_atomic(target, partial(shutil.copyfileobj, file))
        checkpoints.adopt(manifest)
        checkpoints.cut_back(manifest.boundary)
        cut_metrics(self._run_dir / METRICS_FILE, manifest.boundary)


def drop_evaluations(run_dir: Path, of_versions_from: int) -> None:
    """Remove evaluation files whose version is `of_versions_from` or later, or unknown."""
    for name in EVALUATION_FILES.values():
        version = read_object(run_dir / name).get("version")
        if not isinstance(version, int) or not 0 <= version < of_versions_from:
            (run_dir / name).unlink(missing_ok=True)


def publish_totals(board: Board, totals: Totals, values: Mapping[str, float | int | None]) -> None:
    """Publish totals of all records, and values of the newest for the display, on the board."""
    board.outside_support[0] = _or_nan(values.get("outside_support"))
    board.episodes[0] = totals.episodes
    board.mean_return_100[0] = _or_nan(totals.mean_return_100)
    board.best_return[0] = _or_nan(totals.best_return)
    if totals.evaluation is not None:
        board.evaluation[:] = astuple(totals.evaluation)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
