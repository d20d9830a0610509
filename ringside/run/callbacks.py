"""Callbacks of `ringside.train`: functions that receive the records of a run, and may return metrics of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.records.follow import Unsent
from ringside.records.own_metrics import OwnMetrics, checked_values
from shared.errors import ConfigError, StopTraining
from shared.files.run_file_names import METRICS_FILE
from shared.process.ownership import OWN_METRICS_FILE

Record = dict[str, Any]
"""A line of metrics.jsonl (docs/files.md)."""
Callback = Callable[[Record], Mapping[str, float] | None]
"""Receives a record; returns metrics to record at its steps, or None."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that the launcher calls with each new record, in the order of the records.

    What they raise stops the run, which saves its last boundary; then it is raised to the caller of `train`, unless it
    is `StopTraining`.
    """

    on_round: Callback | None = None
    on_episode: Callback | None = None
    on_evaluation: Callback | None = None

    def for_kind(self, kind: str) -> Callback | None:
        """The callback for a kind of record."""
        return {"round": self.on_round, "episode": self.on_episode, "evaluation": self.on_evaluation}[kind]

    @property
    def any(self) -> bool:
        """True if there is one."""
        return any((self.on_round, self.on_episode, self.on_evaluation))


@dataclass(frozen=True)
class ResumePoint:
    """Records that existed before a run began or was resumed."""

    rounds: int = 0
    steps: int = 0
    evaluations: int = 0
    """Number of evaluations."""


@contextmanager
def dispatching(
    callbacks: Callbacks, run_dir: Path, source_dir: Path, resume_point: ResumePoint, note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Call the callbacks with all records that a run adds. Yields the function to call several times a second.

    Args:
        source_dir: run that is continued; `run_dir` for a new one.
        resume_point: records that exist and are not to be passed on.
        note: called with a sentence when own metrics cannot be written.

    Raises:
        ConfigError: own metrics of former steps cannot be cut.
    """
    try:
        own = OwnMetrics(run_dir, source_dir, resume_point.steps, note)
    except OSError as error:
        raise ConfigError(f"{run_dir / OWN_METRICS_FILE} cannot be written: {error.strerror}.") from error
    state = {"round": resume_point.rounds - 1, "evaluation": resume_point.evaluations - 1}
    unsent = Unsent(run_dir / METRICS_FILE, state)

    def poll() -> None:
        try:
            for record in unsent.records() if callbacks.any else ():
                callback = callbacks.for_kind(record["kind"])
                values = None if callback is None else callback(dict(record))
                if values:
                    own.add(record, checked_values(values, f"on_{record['kind']}"))
        finally:
            own.flush()

    try:
        yield poll
        _deliver_rest(poll)
    finally:
        own.close()


def _deliver_rest(poll: Callable[[], None]) -> None:
    """Pass all records on; the run is over, so a request to stop it ends nothing."""
    while True:
        try:
            poll()
        except StopTraining:
            continue  # with the record after that of the request
        return
