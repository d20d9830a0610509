"""The files of a run that the scribe holds open, and how it finds back to them after a trouble with the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringside.recording.events import EventLog
from ringside.recording.metrics import MetricsLog
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.config.settings import CONFIG_FILE, LOGS, METRICS_FILE
from shared.files.atomic import make_directory, write_atomic
from shared.memory.run_memory import Memory
from shared.process.ownership import EVENTS


class RunFiles:
    """Checkpoints, metrics and events of one run, each opened when it is first needed.

    A disk that refused once is not believed: after `doubt` everything is opened and looked at anew. A run directory
    that was moved or removed is made again with all that memory and open files still know: configuration, metrics and,
    with the next checkpoint, the replay.
    """

    def __init__(self, memory: Memory, run_dir: Path, alive: Callable[[], None]) -> None:
        """`alive` is called before whatever may take a slow disk long."""
        self._memory = memory
        self._run_dir = run_dir
        self._alive = alive
        self._checkpoints: CheckpointWriter | None = None
        self._metrics: MetricsLog | None = None
        self._events: EventLog | None = None

    @property
    def checkpoints(self) -> CheckpointWriter:
        """The writer of checkpoints. Raises what `CheckpointWriter` raises."""
        if self._checkpoints is None:
            plan = self._memory.plan
            # Logs of processes that start again lie in there.
            make_directory(self._run_dir / LOGS)
            if not os.path.lexists(self._run_dir / CONFIG_FILE):
                write_atomic(self._run_dir / CONFIG_FILE, json.dumps(plan.config.to_json(), indent=2).encode() + b"\n")
            self._checkpoints = CheckpointWriter(
                self._run_dir, plan.config, plan.run_schedule, plan.actions, self._alive
            )
        return self._checkpoints

    @property
    def metrics(self) -> MetricsLog:
        """The records. Raises `OSError`."""
        if self._metrics is None:
            self._metrics = MetricsLog(self._run_dir / METRICS_FILE)
        return self._metrics

    @property
    def events(self) -> EventLog:
        """TensorBoard's events. Raises `OSError`."""
        if self._events is None:
            steps = int(self._memory.board.written[0]) * self._memory.run_schedule.round_steps
            settings = self._memory.plan.config.to_flat()
            self._events = EventLog(self._run_dir / EVENTS, steps, settings)
        return self._events

    def doubt(self) -> None:
        """After a trouble with the disk. The records stay open: what they hold may be nowhere else any more."""
        self._checkpoints = None
        if self._events is not None:
            with suppress(OSError):  # what it still held back is lost to the charts, and in the records all the same
                self._events.close()
        self._events = None
