"""Open files of a run, and their recovery after disk errors."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringside.recording.events import EventLog
from ringside.recording.metrics import MetricsLog
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.files.atomic import make_directory, write_atomic
from shared.files.lock import identity
from shared.files.run_file_names import CONFIG_FILE, LOGS, METRICS_FILE
from shared.memory.run_memory import Memory
from shared.process.ownership import EVENTS, LOCK_FILE


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
        self._lock = lock
        self._memory = memory
        self._run_dir = run_dir
        self._heartbeat = heartbeat
        self._checkpoints: CheckpointWriter | None = None
        self._metrics: MetricsLog | None = None
        self._events: EventLog | None = None

    def require_own_directory(self) -> None:
        """Raise `OSError` (EBUSY) if the directory has the lock of another run, as after a move of this one's."""
        found = identity(self._run_dir / LOCK_FILE)
        if None not in (self._lock, found) and found != self._lock:
            raise OSError(errno.EBUSY, "another run is in its place", str(self._run_dir))

    @property
    def checkpoints(self) -> CheckpointWriter:
        """Writer of checkpoints. Raises as `CheckpointWriter`."""
        if self._checkpoints is None:
            plan = self._memory.plan
            # Processes that restart write their logs there.
            make_directory(self._run_dir / LOGS)
            if not os.path.lexists(self._run_dir / CONFIG_FILE):
                write_atomic(self._run_dir / CONFIG_FILE, json.dumps(plan.config.to_json(), indent=2).encode() + b"\n")
            self._checkpoints = CheckpointWriter(
                self._run_dir, plan.config, plan.run_schedule, plan.actions, self._heartbeat
            )
        return self._checkpoints

    @property
    def metrics(self) -> MetricsLog:
        """Log of records. Raises `OSError`."""
        if self._metrics is None:
            self._metrics = MetricsLog(self._run_dir / METRICS_FILE)
        return self._metrics

    @property
    def events(self) -> EventLog:
        """TensorBoard events. Raises `OSError`."""
        if self._events is None:
            steps = int(self._memory.board.written[0]) * self._memory.run_schedule.round_steps
            settings = self._memory.plan.config.to_flat()
            self._events = EventLog(self._run_dir / EVENTS, steps, settings)
        return self._events

    def reopen(self) -> None:
        """Open checkpoints and events again at their next use. Records stay open: their data may be nowhere else."""
        self._checkpoints = None
        if self._events is not None:
            with suppress(OSError):  # buffered events are lost to the charts; the records have them
                self._events.close()
        self._events = None
