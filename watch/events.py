"""The records of watch/metrics.py as TensorBoard events, without TensorFlow or torch. The x axis of all is steps."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from watch.metrics import Episode, Values

ROUND_TAGS = {
    "mean_return_100": "charts/mean_return_100",
    "steps_per_second": "charts/steps_per_second",
    "frames_per_second": "charts/frames_per_second",
    "updates_per_second": "charts/updates_per_second",
    "samples_per_step": "charts/samples_per_step",
    "epsilon": "charts/epsilon",
    "loss": "losses/td_loss",
    "mean_q": "losses/q_values",
    "gradient_norm": "losses/gradient_norm",
    "learner_busy": "busy/learner",
    "inference_busy": "busy/inference",
    "actors_busy": "busy/actors",
}
"""TensorBoard's names for the values of a round: where there are any, those that people's dashboards know."""


class EventLog:
    """TensorBoard events in a directory, a new file for every life of the writer.

    Events are flushed with every round. One that is lost or doubled by a kill is lost or doubled in the charts only;
    metrics.jsonl has it right.
    """

    def __init__(self, directory: Path, steps: int) -> None:
        """Open a new file of events.

        Args:
            steps: the clock at which the run goes on; TensorBoard drops what older files have beyond it.

        Raises:
            OSError: as the system says it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        now = time.time_ns()
        path = directory / f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{os.getpid()}.{now % 10**9}"
        self._writer = RecordWriter(open(path, "xb"))  # noqa: SIM115  (closed by `close`)
        try:
            self._write(Event(file_version="brain.Event:2"))
            self._write(Event(session_log=SessionLog(status=SessionLog.START), step=steps + 1))
            self._writer.flush()
        except OSError:
            path.unlink(missing_ok=True)  # or every try on a full disk would leave one behind
            raise

    def round(self, steps: int, values: Values, episodes: Iterable[Episode], envs: int) -> None:
        """The same as `MetricsLog.log_round` takes; values without a name in `ROUND_TAGS` are left out."""
        for episode in episodes:
            totals = {"charts/episodic_return": episode.total, "charts/episodic_length": episode.length}
            self._scalars((episode.tick + 1) * envs, totals)
        self._scalars(steps, {tag: values.get(name) for name, tag in ROUND_TAGS.items()})
        self._writer.flush()

    def evaluation(self, steps: int, values: Values) -> None:
        """Everything in `values` that is a number, under eval/."""
        self._scalars(steps, {f"eval/{name}": value for name, value in values.items()})
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _scalars(self, steps: int, scalars: Values) -> None:
        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if values:
            self._write(Event(step=steps, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
