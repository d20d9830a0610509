"""All runs below a directory, for the overview: what each of them is, its curve, and a picture of those that live."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.watch.attach import runs_below
from ringside.watch.page.live_curves import finite
from ringside.watch.page.source import Source
from shared.errors import ConfigError
from shared.files.run_file_names import EVALUATION_FILES, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process.live import LIVE_FILE
from shared.process.ownership import SUITE_FILE

MOST_RUNS = 200
"""Runs that the overview shows, the newest ones."""
MOST_LIVING = 16
"""Living runs that have a picture."""
CURVE_POINTS = 120
READ_SECONDS = 0.1
"""Time that one call may spend on reading; the rest follows with the next call."""
SCAN_SECONDS = 3.0
"""Interval between two looks for new runs."""


@dataclass
class Entry:
    """One run of the overview."""

    id: str
    path: Path
    began: float
    """Moment at which it wrote its configuration, in seconds since 1970."""
    suite: str | None
    """Directory between the runs and this one, as a suite has."""
    source: Source | None = None
    shown: dict[str, Any] = field(default_factory=dict)
    """JSON values for a viewer."""
    version: int = 0
    """Changes with `shown`."""
    seen: tuple[object, ...] = ()
    """Signature of its files when it was read."""
    read_at: float = float("-inf")
    """Moment of the last reading, in seconds of the monotonic clock."""
    has_more: bool = True
    """True if records are unread."""


class AllRuns:
    """The runs below a directory, read a little at every call."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._entries: dict[Path, Entry] = {}
        self._version = 0
        self._scanned_at = float("-inf")

    def refresh(self) -> None:
        """Look for new runs, and read what has changed, for `READ_SECONDS` at most."""
        begun = time.monotonic()
        if begun - self._scanned_at >= SCAN_SECONDS:
            self._scan()
            self._scanned_at = begun
        # Those that wait for the longest first: living runs change at every call, and others must not wait for that.
        for entry in sorted(self._entries.values(), key=lambda entry: entry.read_at):
            entry.read_at = time.monotonic()
            self._read(entry)
            if time.monotonic() - begun > READ_SECONDS:
                return

    def since(self, version: int) -> dict[str, Any]:
        """Runs that changed after a version, and the ids of all in their order, newest first."""
        entries = [entry for entry in self._entries.values() if entry.shown]
        entries.sort(key=lambda entry: entry.shown["began"], reverse=True)
        return {
            "version": self._version,
            "ids": [entry.id for entry in entries],
            "runs": [entry.shown for entry in entries if entry.version > version],
            "reading": any(entry.has_more for entry in self._entries.values()),
        }

    def thumbnails(self) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
        """Newest frame of the first env of living runs, with ids of the runs and shapes of their frames."""
        found: list[tuple[str, dict[str, int], NDArray[np.uint8]]] = []
        for entry in self._entries.values():
            pictures = entry.source.pictures(0, 1, 0) if entry.source is not None and len(found) < MOST_LIVING else None
            if pictures is not None:
                found.append((entry.id, pictures[0]["shape"], pictures[1][0]))
        fields = {"ids": [each[0] for each in found], "shapes": [each[1] for each in found]}
        return fields, [each[2] for each in found]

    def release_ended(self) -> None:
        """Release the memory of runs that have ended."""
        for entry in list(self._entries.values()):
            if entry.source is not None:
                entry.source.release_ended()

    def source(self, id_: str) -> Source | None:
        """The source of a run; None: there is none of this id, or it cannot be shown."""
        return next((entry.source for entry in list(self._entries.values()) if entry.id == id_), None)

    def _scan(self) -> None:
        found = sorted(runs_below(self.runs), reverse=True)[:MOST_RUNS]
        for path in self._entries.keys() - {path for _, path in found}:
            dropped = self._entries.pop(path)
            if dropped.source is not None:
                dropped.source.detach()
            self._version += 1
        for began, path in found:
            if path not in self._entries:
                relative = path.relative_to(self.runs)
                suite = str(relative.parent) if len(relative.parts) > 1 else None
                id_ = hashlib.sha256(os.fsencode(relative)).hexdigest()[:12]
                self._entries[path] = Entry(id_, path, began, suite)

    def _read(self, entry: Entry) -> None:
        """Bring one entry up to date."""
        seen = tuple(
            _signature(entry.path / name)
            for name in (LIVE_FILE, SUMMARY_FILE, METRICS_FILE, *EVALUATION_FILES.values(), f"../{SUITE_FILE}")
        )
        if seen == entry.seen and not entry.shown.get("living") and not entry.has_more:
            return
        entry.seen = seen
        try:
            if entry.source is None:
                entry.source = Source(entry.path)
            else:
                entry.source.refresh()
            entry.has_more = bool(entry.source.curves(0, [])["more"])
            shown = _shown(entry, entry.source)
        except ConfigError as error:
            entry.has_more = False
            shown = {"name": entry.path.name, "began": entry.began, "refused": str(error)}
        runs = read_object(entry.path.parent / SUITE_FILE).get("runs") if entry.suite is not None else None
        planned = list(map(str, runs)) if isinstance(runs, list) else []
        shown |= {"id": entry.id, "suite": entry.suite, "planned": planned}
        if shown != entry.shown:
            self._version += 1
            entry.shown, entry.version = shown, self._version


def _shown(entry: Entry, source: Source) -> dict[str, Any]:
    """JSON values for a viewer, of a run that can be read."""
    state, config = source.state(), source.config
    status = state["status"]
    judged = {kind: finite(read_object(entry.path / name).get("mean")) for kind, name in EVALUATION_FILES.items()}
    returns, evaluations = source.outline()
    evaluation = evaluations[-1][1] if evaluations else None
    return {
        "name": entry.path.name,
        "began": entry.began,
        "game": state["game"],
        "method": config.algorithm.method,
        "protocol": state["protocol"],
        "seed": config.run.seed,
        "living": state["living"],
        "finished": state["finished"],
        "steps": status["steps"],
        "total_steps": status["total_steps"],
        "steps_per_second": status["steps_per_second"] if state["living"] else None,
        "time_left": status["time_left"],
        "mean_return_100": status["mean_return_100"],
        "evaluation": evaluation,
        "judged": judged["final"] if judged["final"] is not None else judged["best"],
        "curve": thinned(returns),
        "evaluations": thinned(evaluations),
    }


def thinned(rows: Sequence[list[float | None]]) -> list[list[float]]:
    """At most `CURVE_POINTS` points of rows [steps, value, ...], evenly, with the last."""
    points = [[row[0], row[1]] for row in rows if row[0] is not None and row[1] is not None]
    if len(points) > CURVE_POINTS:
        chosen = np.linspace(0, len(points) - 1, CURVE_POINTS).round().astype(int)
        points = [points[place] for place in chosen]
    return points


def _signature(path: Path) -> object:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
