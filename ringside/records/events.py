"""TensorBoard events of a run's records, without TensorFlow or torch. The x axis is steps."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from ringside.records.metric_names import Scalars, record_scalars
from ringside.records.metrics import Episode, Values
from shared.files.atomic import make_directory

FLUSH_SECONDS = 5.0
"""Least time between two flushes of records: a fast run has several a second."""


class EventLog:
    """TensorBoard events in a directory; every incarnation of the writer opens a new file.

    A kill may lose or double events of a few seconds in the charts; metrics.jsonl is exact.
    """

    def __init__(self, directory: Path, steps: int) -> None:
        """Open a new file of events.

        Args:
            steps: step at which the run continues; TensorBoard drops later events of older files.

        Raises:
            OSError: as the system says it.
        """
        make_directory(directory)
        now = time.time_ns()
        path = directory / f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{os.getpid()}.{now % 10**9}"
        self._writer = RecordWriter(open(path, "xb"))  # noqa: SIM115  (closed by `close`)
        try:
            self._write(Event(file_version="brain.Event:2"))
            self._write(Event(session_log=SessionLog(status=SessionLog.START), step=steps + 1))
            self.flush()
        except OSError:
            path.unlink(missing_ok=True)  # else every attempt on a full disk would leave a file
            raise

    def settings(self, settings: Mapping[str, object]) -> None:
        """Add settings by flat name for the tab HParams, which finds metrics by itself."""
        known = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
        self._write(Event(summary=hparams_pb(known, trial_id="")))  # every run is a trial of its own

    def round(self, steps: int, values: Values, episodes: Iterable[Episode], envs: int) -> None:
        """Add a round; arguments as in `MetricsLog.log_round`."""
        for episode in episodes:
            played = {"kind": "episode", "return": episode.total, "length": episode.length}
            self._scalars((episode.tick + 1) * envs, record_scalars(played))
        self.own(steps, record_scalars({"kind": "round", **values}))

    def evaluation(self, steps: int, values: Values) -> None:
        """Add the numbers of an evaluation under eval/."""
        self._scalars(steps, record_scalars({"kind": "evaluation", **values}))
        self.flush()  # it may be long until the next one

    def own(self, steps: int, scalars: Scalars) -> None:
        """Add values by tag; also the user's own."""
        self._scalars(steps, scalars)
        if time.monotonic() >= self._flushed_at + FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Have the file show all events."""
        self._writer.flush()
        self._flushed_at = time.monotonic()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _scalars(self, steps: int, scalars: Scalars) -> None:
        if scalars:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            self._write(Event(step=steps, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
