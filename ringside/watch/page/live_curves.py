"""The curves of a run, read from its metrics.jsonl as it grows, in a bounded number of points."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringside.recording.follow import Follower
from ringside.recording.metric_names import displayed, metric_of, metrics_of
from ringside.recording.own_metrics import parse_own
from shared.process.ownership import OWN_METRICS_FILE

MOST_POINTS = 1_000
"""Most points of a series; beyond that, every second point is dropped."""
SERIES: dict[str, tuple[str, ...]] = {
    "round": (
        "mean_return_100",
        "epsilon",
        "steps_per_second",
        "learner_busy",
        "inference_busy",
        "actors_busy",
        "workers_busy",
    ),
    "episode": ("return",),
    "evaluation": ("mean_return",),
    "own": (),
}
"""Values drawn of each kind of record, over its `steps`; the method's metrics follow those of a round. The user's own
metrics are a kind of their own."""
MOST_METRICS = 24
"""Metrics that are drawn; a damaged file may name any number."""
MOST_VIDEOS = 100
"""Newest evaluations whose videos are offered."""


class Series:
    """Rows of numbers, thinned evenly: every `stride`-th row that was added."""

    def __init__(self) -> None:
        self.rows: list[list[float | None]] = []
        self.newest: list[float | None] | None = None
        self._stride = 1
        self._added = 0

    def add(self, row: list[float | None]) -> bool:
        """Add a row. Returns True if former rows were thinned."""
        keep = self._added % self._stride == 0
        self._added += 1
        self.newest = row
        if not keep:
            return False
        self.rows.append(row)
        if len(self.rows) <= MOST_POINTS:
            return False
        self.rows = self.rows[::2]
        self._stride *= 2
        return True


class Curves:
    """The series of a metrics.jsonl.

    Attributes:
        edition: changes when viewers must get all rows again: thinned, with another metric, or cut back by a resume.
        metrics: names of the method's metrics that the file holds and screens show.
        own: names of the user's own metrics.
        evaluations: number, steps and mean return of the newest evaluations.
    """

    def __init__(self, path: Path, metrics: Sequence[str] = ()) -> None:
        """Read `path`; `metrics` are drawn from the beginning, others from their first record."""
        self._follower = Follower(path)
        self._own_follower = Follower(path.with_name(OWN_METRICS_FILE), parse_own)
        self._declared = displayed(metrics)
        self.edition = 0
        self._reset()

    def _reset(self) -> None:
        self.series = {kind: Series() for kind in SERIES}
        self.metrics = list(self._declared)
        self.own: list[str] = []
        self.evaluations: deque[tuple[int, float, float]] = deque(maxlen=MOST_VIDEOS)
        self.edition += 1

    def read(self) -> bool:
        """Read what was appended since the last call. Returns True if there may be more."""
        found = self._follower.read()
        if found.is_new_file:
            self._reset()
        for record in found.records:
            self._add(record)
        return self._read_own() or found.has_more

    def _read_own(self) -> bool:
        """Read the user's own metrics. Returns True if there may be more."""
        found = self._own_follower.read()
        if found.is_new_file:
            self.series["own"], self.own = Series(), []
            self.edition += 1
        for record in found.records:
            values = record["values"]
            self._add_names(self.own, "own", values)
            if self.series["own"].add([finite(record["steps"]), *(finite(values.get(name)) for name in self.own)]):
                self.edition += 1
        return found.has_more

    def _add(self, record: dict[str, Any]) -> None:
        names = SERIES[record["kind"]]
        if record["kind"] == "round":
            self._add_names(self.metrics, "round", displayed(metrics_of(record)))
            names = (*names, *self.metrics)
        row = [finite(record.get(name)) for name in ("steps", *names)]
        if record["kind"] == "evaluation" and row[0] is not None and row[1] is not None:
            self.evaluations.append((record["evaluation"], row[0], row[1]))
        if row[0] is not None and self.series[record["kind"]].add(row):
            self.edition += 1

    def _add_names(self, known: list[str], kind: str, names: Iterable[str]) -> None:
        """Draw metrics that no record before has named; the rows so far get None for them."""
        new = [name for name in names if name not in known][: MOST_METRICS - len(known)]
        if new:
            known += new
            for row in self.series[kind].rows:
                row += [None] * len(new)
            self.edition += 1

    def since(self, edition: int, known: Sequence[int]) -> dict[str, Any]:
        """Rows that a viewer lacks who has `known` rows of each kind, in the order of `SERIES`, of an edition."""
        same = edition == self.edition and len(known) == len(SERIES)
        begin = dict(zip(SERIES, known, strict=True)) if same else dict.fromkeys(SERIES, 0)
        return {
            "edition": self.edition,
            "fresh": not same,
            "metrics": [_described(name) for name in self.metrics],
            "own_metrics": [name.replace("_", " ") for name in self.own],
            **{kind: series.rows[max(0, begin[kind]) :] for kind, series in self.series.items()},
        }


def metric_rows(metrics: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Metrics as the page gets them: in order, with their descriptions."""
    return [_described(name) | {"value": value} for name, value in metrics.items()]


def _described(name: str) -> dict[str, Any]:
    metric = metric_of(name)
    return {"name": name, "label": metric.label, "unit": metric.unit, "meaning": metric.meaning}


def finite(value: Any) -> float | None:
    """The value if it is a finite number; else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None
