"""The directory of a run: its open files, and the preparation of directory and memory.

A run begins from a checkpoint, from weights, or from nothing.
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
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ringside.records.bottleneck import Sample
from ringside.records.metrics import MetricsLog, Totals, cut_metrics, next_evaluation
from ringside.records.optional_events import event_log_class
from ringside.records.summary import INEXACT_SINCE
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.manifest import Manifest
from shared.checkpoint.segments import load_boundary, load_segments
from shared.checkpoint.weights_file import load_weights
from shared.files import disk_trouble
from shared.files.atomic import make_directory, write_atomic
from shared.files.lock import identity
from shared.files.plain_files import open_to_read
from shared.files.run_file_names import BEST_FILE, CONFIG_FILE, EVALUATION_FILES, LOGS, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.board import BEFORE, Board
from shared.memory.boundary import most_captured_bytes, restore
from shared.memory.run_memory import Memory
from shared.memory.snapshot import PRIORITIES
from shared.process.ownership import EVENTS, LOCK_FILE

if TYPE_CHECKING:
    from ringside.records.events import EventLog


class RunFiles:
    """Checkpoints, metrics and events of one run, each opened at its first use.

    After a disk error, `reopen` makes the next use open and verify everything again. A run directory that was moved or
    removed is created again from memory and open files: configuration, metrics and, with the next checkpoint, the
    replay. Where another run has begun in its place meanwhile, nothing is written.
    """

    def __init__(self, memory: Memory, run_dir: Path, heartbeat: Callable[[], None], lock: bytes | None = None) -> None:
        """Files in `run_dir`.

        Args:
            heartbeat: called before operations that take long on a slow disk.
            lock: identity of the lock that the run holds on the directory; None: it holds none.
        """
        self.run_dir, self._memory, self._heartbeat, self._lock = run_dir, memory, heartbeat, lock

    def require_own_directory(self) -> None:
        """Raise `OSError` (EBUSY) if the directory has the lock of another run, as after a move of this one's."""
        found = identity(self.run_dir / LOCK_FILE)
        if None not in (self._lock, found) and found != self._lock:
            raise OSError(errno.EBUSY, "another run is in its place", str(self.run_dir))

    @cached_property
    def checkpoints(self) -> CheckpointWriter:
        """Writer of checkpoints. Raises as `CheckpointWriter`."""
        plan, config_file = self._memory.plan, self.run_dir / CONFIG_FILE
        # Processes that restart write their logs there.
        make_directory(self.run_dir / LOGS)
        if not os.path.lexists(config_file):
            write_atomic(config_file, json.dumps(plan.config.to_json(), indent=2).encode() + b"\n")
        return CheckpointWriter(
            self.run_dir, plan.config, plan.run_schedule, plan.actions, self._heartbeat, plan.own_torso
        )

    @cached_property
    def metrics(self) -> MetricsLog:
        """Log of records. Raises `OSError`."""
        return MetricsLog(self.run_dir / METRICS_FILE)

    @cached_property
    def events(self) -> EventLog | None:
        """TensorBoard events; None where the extra `track` is missing or broken. Raises `OSError`."""
        if (make := event_log_class()) is None:
            return None
        steps = int(self._memory.board.written[0]) * self._memory.run_schedule.round_steps
        log = make(self.run_dir / EVENTS, steps)
        log.settings(self._memory.plan.config.to_flat())
        return log

    def sync(self) -> None:
        """Force the records to the disk, and have TensorBoard see them. Raises `OSError`."""
        self.metrics.sync()
        if (events := vars(self).get("events")) is not None:
            events.flush()

    def reopen(self) -> None:
        """Open checkpoints and events again at their next use. Records stay open: their data may be nowhere else."""
        vars(self).pop("checkpoints", None)
        if (events := vars(self).pop("events", None)) is not None:
            with suppress(OSError):  # buffered events are lost to the charts; the records have them
                events.close()


def prepare(memory: Memory, files: RunFiles, heartbeat: Callable[[], None], checkpoint: Manifest | None) -> None:
    """Prepare the memory and the directory of a new or a resumed run, before other roles start to work.

    Args:
        heartbeat: called during long operations.
        checkpoint: the verified one that is resumed; None: the run is new.

    Raises:
        CheckpointError: the run cannot be resumed. OSError: the disk refuses.
    """
    board, init_from = memory.board, memory.plan.config.run.init_from
    if checkpoint is not None:
        _restore(memory, files, checkpoint, heartbeat)
    else:
        # Remove what a run without a checkpoint left in this directory.
        files.checkpoints.cut_back(0)
        cut_metrics(files.run_dir / METRICS_FILE, 0)
        if init_from is not None:
            _begin_with_weights(memory, init_from)
    if not memory.plan.env_repeats:
        board.lane_inexact[:] = max(0, board.committed) * memory.run_schedule.round_steps
    (files.run_dir / SUMMARY_FILE).unlink(missing_ok=True)  # the run is unfinished
    drop_evaluations(files.run_dir, of_versions_from=board.committed + 1)
    board.written[0] = max(0, board.committed)
    board.begun_ns[0] = board.saved_at_ns[0] = time.monotonic_ns()
    board.samples[:] = Sample.take(memory, int(board.begun_ns[0])).words
    board.prepared[0] = 1


def _restore(memory: Memory, files: RunFiles, manifest: Manifest, heartbeat: Callable[[], None]) -> None:
    """Restore the run from a checkpoint."""
    config, run_schedule, boundary = memory.plan.config, memory.run_schedule, manifest.boundary
    past, recorded = manifest.evaluations, next_evaluation(manifest.run_dir / METRICS_FILE, boundary)
    restore(memory, boundary, load_boundary(manifest, most_captured_bytes(memory, past)), past, recorded)
    load_segments(manifest, run_schedule, memory.ring.field, heartbeat)
    if config.play.env is not None:
        memory.ring.end_cut_episodes(run_schedule.window_begin(boundary), boundary * run_schedule.round_ticks)
    _adopt(memory.board, files, manifest)
    publish_totals(memory.board, files.metrics.totals, {})
    memory.board.before[:] = [float(manifest.counters.get(name, 0.0)) for name in BEFORE]
    memory.board.inexact_since[0] = _inexact_since(memory, manifest)


def _begin_with_weights(memory: Memory, path: Path) -> None:
    """Let the learner begin with the weights of a file; all else of its state is that of a new run."""
    weights = load_weights(path)
    weights.require(memory.plan.network)

    def fill(out: dict[str, NDArray[np.float32]]) -> None:
        for name in out:
            out[name][:] = weights.flat if name in ("online", "target") else 0.0
        if PRIORITIES in out:
            out[PRIORITIES][-1] = 1.0  # maximum priority before the first update

    memory.learner_snapshots.write(0, fill)


def _inexact_since(memory: Memory, manifest: Manifest) -> int:
    """Step from which a resumed run differs bitwise from an undisturbed one; -1: it does not."""
    lost = [] if manifest.has_replay else ["no last round (--no-checkpoint-replay)"]
    if changed := manifest.arithmetic_differences(memory.plan.config) + lost:
        disk_trouble.log_line(f"The run continues, but not to the same last bit: {', '.join(changed)}.")
    since = manifest.boundary * memory.run_schedule.round_steps if changed else -1
    return int(manifest.counters.get(INEXACT_SINCE, since))


def _adopt(board: Board, files: RunFiles, manifest: Manifest) -> None:
    """Restore the run directory to its state at the checkpoint's boundary; the checkpoint may be of another
    directory."""
    checkpoints = files.checkpoints  # creates their directory
    source, target = manifest.run_dir / METRICS_FILE, files.run_dir / METRICS_FILE
    if manifest.directory.resolve() == checkpoints.directory.resolve():
        board.saved[0] = manifest.boundary
    else:
        checkpoints.cut_back(0)  # what a run without a checkpoint left in this directory
        for original, copied in ((manifest.directory / BEST_FILE, checkpoints.directory / BEST_FILE), (source, target)):
            if os.path.lexists(original):
                with open_to_read(original) as file:
                    write_atomic(copied, partial(shutil.copyfileobj, file))
        checkpoints.adopt(manifest)
    checkpoints.cut_back(manifest.boundary)
    cut_metrics(target, manifest.boundary)


def drop_evaluations(run_dir: Path, of_versions_from: int) -> None:
    """Remove evaluation files whose version is `of_versions_from` or later, or unknown."""
    for name in EVALUATION_FILES.values():
        version = read_object(run_dir / name).get("version")
        if not isinstance(version, int) or not 0 <= version < of_versions_from:
            (run_dir / name).unlink(missing_ok=True)


def publish_totals(board: Board, totals: Totals, values: Mapping[str, float | int | None]) -> None:
    """Publish totals of all records, and values of the newest for the display, on the board, where None is NaN."""
    board.outside_support[0] = values.get("outside_support")
    board.episodes[0] = totals.episodes
    board.mean_return_100[0] = totals.mean_return_100
    board.best_return[0] = totals.best_return
    if totals.evaluation is not None:
        board.evaluation[:] = astuple(totals.evaluation)
