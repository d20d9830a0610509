"""The user's own metrics: what callbacks return, in own-metrics.jsonl and as TensorBoard events.

The launcher writes them. Dashboards show a metric as own/NAME, over the steps of the record that its callback received.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.records.optional_events import event_log_class
from shared.config.method_declaration import METRIC_NAME
from shared.errors import ConfigError
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read, open_to_write
from shared.files.strict_json import json_object
from shared.process.ownership import OWN_EVENTS, OWN_METRICS_FILE

if TYPE_CHECKING:
    from ringside.records.events import EventLog

_FILE_LIMIT = 1 << 30


def parse_own(line: bytes) -> dict[str, Any] | None:
    """The record that a whole line of an own-metrics.jsonl holds, or None."""
    record = json_object(line) if line.endswith(b"\n") else None
    if record is None or type(record.get("steps")) is not int or not isinstance(record.get("values"), dict):
        return None
    return record if all(METRIC_NAME.fullmatch(name) for name in record["values"]) else None


def own_scalars(values: Mapping[str, object]) -> dict[str, float]:
    """Values by their tags on dashboards."""
    return {f"own/{name}": float(value) for name, value in values.items() if isinstance(value, int | float)}


def checked_values(values: Mapping[str, float], where: str) -> dict[str, float]:
    """Values as a callback returned them. Raises `ConfigError` unless they are numbers with plain names."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} returned a {type(values).__name__}; return numbers by name, or None.")
    found = {}
    for name, value in values.items():
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            raise ConfigError(
                f"{where} returned a metric named {name!r:.80}; a name has lower-case letters, digits and underscores."
            )
        try:
            found[name] = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{where} returned {name} = {value!r:.80}, which is no number.") from None
    return {name: value for name, value in found.items() if math.isfinite(value)}


class OwnMetrics:
    """Writer of the user's own metrics of one run. A disk error delays them and does not disturb the run."""

    def __init__(self, run_dir: Path, source_dir: Path, steps: int, note: Callable[[str], None]) -> None:
        """Continue the metrics of `source_dir` up to `steps`; 0: begin anew.

        Args:
            note: called with a sentence when the disk refuses.

        Raises:
            OSError: as the system says it. FileError: the file is no plain one.
        """
        self._path = run_dir / OWN_METRICS_FILE
        self._steps, self._note = steps, note
        self._events: EventLog | None = None
        self._pending: list[bytes] = []
        self._told = False
        kept, former = b"", source_dir / OWN_METRICS_FILE
        if steps and os.path.lexists(former):
            with open_to_read(former, _FILE_LIMIT) as file:
                kept = b"".join(line for line in file if (record := parse_own(line)) and record["steps"] <= steps)
        if kept or os.path.lexists(self._path):
            write_atomic(self._path, kept)

    def add(self, record: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Record values at the steps of a record."""
        line = {"steps": record["steps"], "round": record["round"], "kind": record["kind"], "values": dict(values)}
        self._pending.append(json.dumps(line).encode() + b"\n")
        with suppress(OSError):  # the file has them
            if self._events is None and (make := event_log_class()) is not None:
                self._events = make(self._path.parent / OWN_EVENTS, self._steps)
            if self._events is not None:
                self._events.own(record["steps"], own_scalars(values))

    def flush(self) -> None:
        """Write what was added. After a disk error it is kept for the next call."""
        if not self._pending:
            return
        try:
            with open(open_to_write(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                data = b"".join(self._pending)
                if file.write(data) != len(data):  # the disk is full: leave no half line
                    file.truncate(before)
                    raise OSError(None, "the disk is full")
            self._pending.clear()
        except OSError as error:
            if not self._told:
                self._told = True
                self._note(f"{self._path} cannot be written ({error.strerror}); your own metrics follow later.")

    def close(self) -> None:
        """Write the rest and close the events."""
        self.flush()
        if self._events is not None:
            with suppress(OSError):  # the charts lack the rest; the file follows later
                self._events.close()
