"""Records of metrics.py as TensorBoard events, without TensorFlow or torch. The x axis of all is steps."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo
from tensorboard.summary.writer.record_writer import RecordWriter

from ringside.recording.metric_names import Scalars, episode_scalars, evaluation_scalars, round_scalars
from ringside.recording.metrics import Episode, Values
from shared.files.atomic import make_directory


class EventLog:
    """TensorBoard events in a directory, a new file for every life of the writer.

    Events are flushed with every round. One that is lost or doubled by a kill is lost or doubled in the charts only;
    metrics.jsonl has it right.
    """

    def __init__(self, directory: Path, steps: int, settings: Mapping[str, object]) -> None:
        """Open a new file of events.

        Args:
            steps: the clock at which the run goes on; TensorBoard drops what older files have beyond it.
            settings: the run's, by their flat names, for the tab of hyper-parameters.

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
            self._write(Event(summary=_hyperparameters(settings, now / 1e9)))
            self._writer.flush()
        except OSError:
            path.unlink(missing_ok=True)  # or every try on a full disk would leave one behind
            raise

    def round(self, steps: int, values: Values, episodes: Iterable[Episode], envs: int) -> None:
        """The same as `MetricsLog.log_round` takes."""
        for episode in episodes:
            self._scalars((episode.tick + 1) * envs, episode_scalars(episode.total, episode.length))
        self._scalars(steps, round_scalars(values))
        self._writer.flush()

    def evaluation(self, steps: int, values: Values) -> None:
        """Everything in `values` that is a number, under eval/."""
        self._scalars(steps, evaluation_scalars(values))
        self._writer.flush()

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


def _hyperparameters(settings: Mapping[str, object], begun: float) -> Summary:
    """What the HParams plugin reads; it finds metrics by itself. `begun`: seconds since 1970."""
    session = SessionStartInfo(start_time_secs=begun)
    for name, value in settings.items():
        if isinstance(value, bool):
            session.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            session.hparams[name].number_value = value
        elif isinstance(value, str):
            session.hparams[name].string_value = value
    data = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_start_info=session)
    about = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString())
    value = Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=SummaryMetadata(plugin_data=about))
    return Summary(value=[value])
