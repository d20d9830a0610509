"""metrics.jsonl, the record of a run. TensorBoard events hold the same values: ringside/records/events.py.

metrics.jsonl has one JSON object a line:

    {"kind": "episode", "round": 7, "steps": 73248, "env": 31, "tick": 762, "return": 4.0, "length": 512}
    {"kind": "round", "round": 7, "steps": 79872, ..., "episodes": 412, "mean_return_100": 1.9, "best_return": 11.0}
    {"kind": "evaluation", "evaluation": 0, "round": 5, "steps": 50000, "mean_return": 2.4, ...}

Episodes that end in a round precede it: the line of a round says that the round is complete. Opening the file truncates
what a killed writer left unfinished, and nothing is written twice. So the file is a function of the committed rounds
alone, except for measured values: seconds, speeds, and the busy share of each group of roles since the record before.
Evaluations may follow their round late.

`Totals` sums the records up: episodes, returns and evaluations. A `Follower` reads the file while the scribe writes it.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shared.errors import FileError
from shared.files.atomic import write_atomic
from shared.files.plain_files import open_to_read, open_to_write
from shared.files.strict_json import json_object

MEAN_OVER = 100
"""Episodes in the rolling mean of returns."""


def mean_name(episodes: int) -> str:
    """Name of the mean return of the newest `MEAN_OVER` episodes when `episodes` have ended."""
    return f"mean of {MEAN_OVER}" if episodes >= MEAN_OVER else f"mean of the last {episodes}"


@dataclass(frozen=True)
class EvaluationStatus:
    """The newest evaluation."""

    steps: int
    """Step of the version that was evaluated."""
    episodes: int
    mean_return: float
    best_mean: float
    """The best mean so far."""


class Totals:
    """Running totals.

    Attributes:
        episodes: how many have ended.
        best_return: of an episode; None: none has ended.
        evaluation: the newest evaluation beside training, and the best so far; None: there is none.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self.best_return: float | None = None
        self.evaluation: EvaluationStatus | None = None
        self._recent: deque[float] = deque(maxlen=MEAN_OVER)

    @property
    def mean_return_100(self) -> float | None:
        """Mean return of the newest `MEAN_OVER` episodes, or of all if fewer; None: no episode has ended."""
        return math.fsum(self._recent) / len(self._recent) if self._recent else None

    def add(self, record: Mapping[str, Any], episodes: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add the record of a round with its episodes, or of an evaluation; one that lacks figures is ignored."""
        for value in (float(episode["return"]) for episode in episodes):
            self.episodes += 1
            self._recent.append(value)
            self.best_return = value if self.best_return is None else max(value, self.best_return)
        ended, mean = record.get("episodes"), record.get("mean_return")
        if record["kind"] == "evaluation" and isinstance(ended, int) and isinstance(mean, int | float):
            best = mean if self.evaluation is None else max(mean, self.evaluation.best_mean)
            self.evaluation = EvaluationStatus(record["steps"], ended, mean, best)


_FILE_LIMIT = 4 << 30
_LINE_LIMIT = 1 << 20
"""Bytes of the longest line; a longer line is no record."""
_NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "episode": {"round": (int,), "steps": (int,), "return": (int, float)},
    "round": {"round": (int,), "steps": (int,)},
    "evaluation": {"round": (int,), "steps": (int,), "evaluation": (int,)},
}
"""Required fields and their types, by kind of record."""

Values = Mapping[str, float | int | str | None]


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    tick: int
    """The tick that ended it."""
    total: float
    """Raw return of the episode."""
    length: int
    """Steps of the episode."""


def episodes_in(ring: Mapping[str, np.ndarray], first_tick: int, stop_tick: int) -> list[Episode]:
    """The episodes that ended in the ticks [first_tick, stop_tick), by tick and env.

    A lost life ends no episode here, and an episode that was cut has no steps (actors/lane.py). Every slot carries the
    totals of its episode, so this needs no state.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; the ticks are committed.
    """
    capacity, lane_envs = ring["valid"].shape[1:3]
    slots = np.arange(first_tick, stop_tick) % capacity
    ended = (ring["terminated"][:, slots] | ring["truncated"][:, slots]) & ring["valid"][:, slots]
    ended &= ring["episode_steps"][:, slots] > 0
    i, lane, j = ended.transpose(1, 0, 2).nonzero()  # in the order of ticks
    played = (ring[name][lane, slots[i], j].tolist() for name in ("episode_return", "episode_steps"))
    places = (lane * lane_envs + j).tolist(), (first_tick + i).tolist()
    return [Episode(*each) for each in zip(*places, *played, strict=True)]


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a metrics.jsonl, without an unfinished group at its end.

    Raises:
        FileError: a line before the last record is no record, or it is no plain file, or too large.
    """
    for group in _groups(path):
        yield from group.episodes
        yield group.record


class _Group(NamedTuple):
    """A round with its episodes, or an evaluation."""

    record: dict[str, Any]
    episodes: list[dict[str, Any]]
    content: bytes
    """Its lines."""


def _groups(path: Path, *, damaged: bool = False) -> Iterator[_Group]:
    """Groups of the file, without an unfinished one at its end. Lines at the end that are no records are skipped.

    With `damaged`, lines in the middle that are no records are skipped, too; otherwise they raise `FileError`.
    Episodes that stand before an evaluation belong to a round that was never finished, so they are in no group.
    """
    lines: list[bytes] = []
    episodes: list[dict[str, Any]] = []
    unreadable = 0
    with open_to_read(path, _FILE_LIMIT) as file:
        for number, line in enumerate(iter(partial(file.readline, _LINE_LIMIT), b""), start=1):
            record = parse_record(line)
            if record is None:
                unreadable = unreadable or number
                continue
            if unreadable and not damaged:
                raise FileError(
                    f"{path} is damaged: line {unreadable} is not a record, but line {number} is. To drop such "
                    "lines, continue the run with --resume."
                )
            lines.append(line)
            if record["kind"] == "episode":
                episodes.append(record)
                continue
            is_round = record["kind"] == "round"
            yield _Group(record, episodes, b"".join(lines)) if is_round else _Group(record, [], line)
            lines, episodes = [], []


def parse_record(line: bytes) -> dict[str, Any] | None:
    """The record that a whole line of a metrics.jsonl holds, or None."""
    record = json_object(line) if line.endswith(b"\n") else None
    kind = None if record is None else record.get("kind")
    if record is None or not isinstance(kind, str) or kind not in _NEEDED:
        return None
    is_complete = all(type(record.get(name)) in types for name, types in _NEEDED[kind].items())
    return record if is_complete else None


def require_readable(path: Path) -> None:
    """Raise unless a run can continue this metrics.jsonl; the file may be missing.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    if os.path.lexists(path):
        open_to_read(path, _FILE_LIMIT).close()


def _kept(path: Path, boundary: int | None) -> Iterator[_Group]:
    """Groups of a file that `cut_metrics` keeps, without damaged lines; with None all. A missing file has none.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    for group in _groups(path, damaged=True) if os.path.lexists(path) else ():
        is_evaluation = group.record["kind"] == "evaluation"
        if boundary is None or group.record["round"] < boundary + is_evaluation:
            yield group


def evaluations_in(path: Path, boundary: int | None = None) -> set[int]:
    """Numbers of the evaluations that `cut_metrics` keeps; None: of all. Raises as `cut_metrics`."""
    return {each.record["evaluation"] for each in _kept(path, boundary) if each.record["kind"] == "evaluation"}


def next_evaluation(path: Path, boundary: int) -> int:
    """Number of the evaluation after those that `cut_metrics` keeps. Raises as `cut_metrics`."""
    return max(evaluations_in(path, boundary), default=-1) + 1


def cut_metrics(path: Path, boundary: int | None) -> None:
    """Truncate a metrics.jsonl to a boundary, atomically: a run that resumes there plays the rest again.

    Rounds before `boundary`, their episodes, and evaluations of versions up to `boundary` stay; None: all groups. A
    missing file stays missing.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    if os.path.lexists(path):
        write_atomic(path, b"".join(group.content for group in _kept(path, boundary)))


class MetricsLog:
    """The metrics.jsonl of a run, open for writing by one process.

    Attributes:
        last_round: the newest round in the file; -1: none.
        totals: of all records.
        evaluations: numbers of the evaluations in the file.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, drop unfinished groups, and read its statistics.

        Lines that are no records are dropped, too: a failing disk may lose data that it had accepted.

        Raises:
            FileError: it is too large. OSError: as the system says it.
        """
        self._path = path
        self._fd = open_to_write(path, os.O_RDWR | os.O_APPEND)
        self._sync_failed = False
        self._read_existing()
        if self._size < os.fstat(self._fd).st_size:
            self.cut(None)

    def _read_existing(self) -> None:
        """Read the statistics of the file, and the size of its complete groups."""
        self.last_round = -1
        self.totals = Totals()
        self.evaluations: set[int] = set()
        self._size = 0
        for record, episodes, content in _kept(self._path, None):
            if record["kind"] == "round":
                self.last_round = record["round"]
            else:
                self.evaluations.add(record["evaluation"])
            self.totals.add(record, episodes)
            self._size += len(content)

    def log_round(self, round_: int, steps: int, values: Values, episodes: Iterable[Episode], envs: int) -> None:
        """Append a committed round and the episodes that ended in it, in one write, unless the file has it already.

        Args:
            round_: its number (that of the first round of a record); must grow.
            steps: the clock at its end: ticks x envs.
            values: its other values; numbers that are not finite become null.
            envs: how many play; an episode's clock is (tick + 1) x envs.

        Raises:
            OSError: as the system says it; then the file holds nothing of the round.
        """
        if round_ <= self.last_round:
            return
        lines = [
            {"kind": "episode", "round": round_, "steps": (episode.tick + 1) * envs}
            | dict(zip(("env", "tick", "return", "length"), episode, strict=True))
            for episode in episodes
        ]
        record = {"kind": "round", "round": round_, "steps": steps, **values}
        totals = copy.deepcopy(self.totals)
        totals.add(record, lines)
        record |= {name: getattr(totals, name) for name in ("episodes", "mean_return_100", "best_return")}
        self._append([*lines, record])
        self.totals = totals
        self.last_round = round_

    def log_evaluation(self, number: int, round_: int, steps: int, values: Values) -> None:
        """Append evaluation `number`, of the version of `round_`, unless the file has it already.

        Raises:
            OSError: as the system says it; then the file holds nothing of it.
        """
        if number in self.evaluations:
            return
        record = {"kind": "evaluation", "evaluation": number, "round": round_, "steps": steps, **values}
        self._append([record])
        self.evaluations.add(number)
        self.totals.add(record)

    def cut(self, boundary: int | None) -> None:
        """Drop the records after `boundary`, for a run that ends there; None: none. Raises as `cut_metrics`."""
        cut_metrics(self._path, boundary)
        self._reopen()
        self._read_existing()

    def sync(self) -> None:
        """Force the file to the disk, before a checkpoint, which must not be ahead of it.

        A file that was moved or removed, or whose last sync failed, is written again under its name. The open
        descriptor still has all of it, and after a failed sync the next one may succeed without writing.

        Raises:
            OSError: as the system says it.
        """
        in_place = False
        with suppress(FileNotFoundError):
            in_place = os.path.samestat(os.lstat(self._path), os.fstat(self._fd))
        if self._sync_failed or not in_place:
            with open(os.dup(self._fd), "rb") as former:
                former.seek(0)
                write_atomic(self._path, partial(shutil.copyfileobj, former))
            self._reopen()
        self._sync_failed = True
        os.fsync(self._fd)
        self._sync_failed = False

    def _reopen(self) -> None:
        """Open the file that has the name now."""
        gone, self._fd = self._fd, open_to_write(self._path, os.O_RDWR | os.O_APPEND)
        os.close(gone)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write all lines, or none."""
        data = b"".join(json.dumps(_finite(record)).encode() + b"\n" for record in records)
        self._drop_partial_write()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            self._drop_partial_write()
            raise
        self._size += len(data)

    def _drop_partial_write(self) -> None:
        """Truncate records that were written in part."""
        if os.fstat(self._fd).st_size > self._size:
            os.ftruncate(self._fd, self._size)


def _finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with null in place of NaN and infinity, which JSON does not know."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


READ_BYTES = 4 << 20
"""Most bytes of one read, so that a long file delays nothing else."""


class NewRecords(NamedTuple):
    """Records that one read found."""

    records: list[dict[str, Any]]
    is_new_file: bool
    """True if the file was replaced or truncated since the last read, as by a resume; the records are its first."""
    has_more: bool
    """True if another read may find more."""


class Follower:
    """Reads every complete record of a metrics.jsonl once, in order. Damaged lines are skipped."""

    def __init__(self, path: Path, parse: Callable[[bytes], dict[str, Any] | None] = parse_record) -> None:
        """`parse` returns the record of a line, or None; other files than metrics.jsonl have their own."""
        self._path, self._parse = path, parse
        self._inode, self._offset = -1, 0

    def read(self) -> NewRecords:
        """Return what was appended since the last call. An unreadable or missing file counts as unchanged."""
        try:
            with open_to_read(self._path) as file:
                status = os.fstat(file.fileno())
                is_new_file = status.st_ino != self._inode or status.st_size < self._offset
                if is_new_file:
                    self._inode, self._offset = status.st_ino, 0
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except (OSError, FileError):
            return NewRecords([], is_new_file=False, has_more=False)
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        records = list(filter(None, map(self._parse, data[:whole].splitlines(keepends=True))))
        return NewRecords(records, is_new_file, has_more=len(data) == READ_BYTES and whole > 0)


class Unsent:
    """Records that were not sent yet. A resume may truncate and extend the file: none is sent twice."""

    def __init__(self, metrics: Path, state: dict[str, Any]) -> None:
        """`state` holds the newest `round` and `evaluation` sent, and is kept up to date."""
        self._follower = Follower(metrics)
        self._state = state
        self._episodes: list[dict[str, Any]] = []
        self._queue: deque[dict[str, Any]] = deque()

    def records(self) -> Iterator[dict[str, Any]]:
        """Rounds, each after its episodes, and evaluations. What a caller leaves comes with the next call."""
        has_more = True
        while has_more:
            found, is_new_file, has_more = self._follower.read()
            if is_new_file:
                self._episodes.clear()
                self._queue.clear()
            for record in found:
                kind = record["kind"]
                is_new = kind != "episode" and record[kind] > self._state.get(kind, -1)
                if kind != "evaluation":
                    self._episodes.append(record)
                if is_new:
                    self._queue += self._episodes if kind == "round" else [record]
                if kind == "round":
                    self._episodes.clear()
            while self._queue:
                record = self._queue.popleft()
                if record["kind"] != "episode":
                    self._state[record["kind"]] = record[record["kind"]]
                yield record
