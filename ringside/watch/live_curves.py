"""The curves of a run, read from its files of records as they grow, in a bounded number of points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringside.records.follow import Follower
from ringside.records.metric_names import displayed, metric_of, metrics_of
from ringside.records.own_metrics import parse_own
from shared.files.run_file_names import METRICS_FILE
from shared.process.ownership import OWN_METRICS_FILE

MOST_POINTS = 1_000
"""Most points of a series; beyond that, every second point is dropped."""
BUSY = tuple(f"{role}_busy" for role in ("learner", "inference", "actors", "workers"))
SERIES: dict[str, tuple[str, ...]] = {
    "round": ("mean_return_100", "epsilon", "steps_per_second", *BUSY),
    "episode": ("return",),
    "evaluation": ("mean_return", "evaluation"),
    "own": (),
}
"""Values of each kind of record, after its `steps`; the method's metrics follow those of a round. The user's own
metrics are a kind of their own."""
MOST_METRICS = 24
"""Metrics that are drawn; a damaged file may name any number."""


class Series:
    """Rows [steps, value, ...], thinned evenly: every `stride`-th row that was added.

    Attributes:
        rows: those that are drawn.
        metrics: names of the values after the fixed ones.
        last: the newest record, untrusted; empty: there is none.
        edition: changes when viewers must get all rows again: thinned, with another metric, or cleared.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        """Each row has `fields`, then the metrics that records name."""
        self._fields = fields
        self.edition = 0
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.rows: list[list[float | None]] = []
        self.metrics: list[str] = []
        self.last: Mapping[str, Any] = {}
        self._stride, self._added = 1, 0
        self.edition += 1

    def add(self, steps: Any, values: Mapping[str, Any], metrics: Iterable[str] = ()) -> None:
        """Add a row, unless its steps are no number. Former rows get None for metrics that no record has named yet."""
        if finite(steps) is None:
            return
        new = [name for name in metrics if name not in self.metrics][: MOST_METRICS - len(self.metrics)]
        if new:
            self.metrics += new
            for row in self.rows:
                row += [None] * len(new)
            self.edition += 1
        self.last = values
        if self._added % self._stride == 0:
            self.rows.append([steps, *(finite(values.get(name)) for name in (*self._fields, *self.metrics))])
        self._added += 1
        if len(self.rows) > MOST_POINTS:
            self.rows = self.rows[::2]
            self._stride *= 2
            self.edition += 1


class Curves:
    """The series of a run, by kind of record."""

    def __init__(self, run_dir: Path) -> None:
        self.series = {kind: Series(fields) for kind, fields in SERIES.items()}
        self._records = Follower(run_dir / METRICS_FILE)
        self._own = Follower(run_dir / OWN_METRICS_FILE, parse_own)

    def read(self) -> bool:
        """Read what was appended since the last call. Returns True if there may be more."""
        found, own = self._records.read(), self._own.read()
        for kind in self.series:
            if own.is_new_file if kind == "own" else found.is_new_file:
                self.series[kind].clear()
        for record in found.records:
            metrics = displayed(metrics_of(record)) if record["kind"] == "round" else ()
            self.series[record["kind"]].add(record["steps"], record, metrics)
        for record in own.records:
            self.series["own"].add(record["steps"], record["values"], record["values"])
        return found.has_more or own.has_more

    def since(self, edition: int, known: Sequence[int]) -> dict[str, Any]:
        """Rows that a viewer lacks who has `known` rows of each kind, in the order of `SERIES`, of an edition."""
        newest = sum(series.edition for series in self.series.values())
        same = edition == newest and len(known) == len(SERIES)
        begin = known if same else [0] * len(SERIES)
        return {
            "edition": newest,
            "fresh": not same,
            "metrics": [{"name": name, **metric_of(name)._asdict()} for name in self.series["round"].metrics],
            "own_metrics": [name.replace("_", " ") for name in self.series["own"].metrics],
            **{kind: self.series[kind].rows[first:] for kind, first in zip(SERIES, begin, strict=True)},
        }


def finite(value: Any) -> float | None:
    """The value if it is a finite number; else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None
