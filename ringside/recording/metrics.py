"""What a run writes down about itself: metrics.jsonl. The same as TensorBoard events: ringside/recording/events.py.

metrics.jsonl has one JSON object a line:

    {"kind": "episode", "round": 7, "steps": 73248, "env": 31, "tick": 762, "return": 4.0, "length": 512}
    {"kind": "round", "round": 7, "steps": 79872, ..., "episodes": 412, "mean_return_100": 1.9, "best_return": 11.0}
    {"kind": "evaluation", "evaluation": 0, "round": 5, "steps": 50000, "mean_return": 2.4, ...}

The episodes that a round finished stand before it: a round's own line says that all of it is there. What a killed
writer left unfinished is cut off when the file is opened again, and nothing is written twice. So the file, and every
statistic made from it, is a function of the committed rounds alone, but for what is measured: seconds, speeds, and the
busy share of each group of roles since the record before. Evaluations may stand later than their round.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from ringside.recording.totals import Totals
from shared.errors import FatalError
from shared.files.atomic import json_object, open_to_read, open_to_write, write_atomic

_FILE_LIMIT = 4 << 30
_LINE_LIMIT = 1 << 20
"""Bytes of a line at most; what is longer is no record."""
_NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "episode": {"round": (int,), "steps": (int,), "return": (int, float)},
    "round": {"round": (int,), "steps": (int,)},
    "evaluation": {"round": (int,), "steps": (int,), "evaluation": (int,)},
}
"""By kind of record: what its readers count on."""

Values = Mapping[str, float | int | str | None]


class MetricsError(FatalError):
    """metrics.jsonl cannot be used. The message is a sentence for the user."""


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    tick: int
    """The tick that ended it."""
    total: float
    """Its raw return."""
    length: int
    """Its steps."""


def episodes_in(ring: Mapping[str, np.ndarray], first_tick: int, stop_tick: int) -> list[Episode]:
    """The episodes that ended in the ticks [first_tick, stop_tick), by tick and env.

    A lost life ends no episode here. Every slot carries the totals of its episode, so nothing need be remembered.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; the ticks are committed.
    """
    capacity, lane_envs = ring["valid"].shape[1:3]
    slots = np.arange(first_tick, stop_tick) % capacity
    ended = (ring["terminated"][:, slots] | ring["truncated"][:, slots]) & ring["valid"][:, slots]
    # Transposed to [ticks, lanes, lane_envs], so that they come in the order of ticks.
    places = np.argwhere(ended.transpose(1, 0, 2))
    return [
        Episode(
            env=int(lane * lane_envs + j),
            tick=int(first_tick + i),
            total=float(ring["episode_return"][lane, slots[i], j]),
            length=int(ring["episode_steps"][lane, slots[i], j]),
        )
        for i, lane, j in places
    ]


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a metrics.jsonl, without what a writer has not finished.

    Raises:
        MetricsError: something in the middle is no record. FileError: it is no plain file, or too large.
    """
    pending: list[dict[str, Any]] = []
    for _, record in _lines(path):
        pending.append(record)
        if record["kind"] != "episode":
            yield from pending
            pending = []


def _lines(path: Path, *, damaged: bool = False) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every line of the file that is a record, as bytes and parsed; what no record follows is left out.

    `damaged`: so is what one follows, which otherwise is a `MetricsError`.
    """
    unreadable = 0
    with open_to_read(path, _FILE_LIMIT) as file:
        for number, line in enumerate(iter(partial(file.readline, _LINE_LIMIT), b""), start=1):
            record = parse_record(line)
            if record is None:
                unreadable = unreadable or number
            elif unreadable and not damaged:
                raise MetricsError(
                    f"{path} is damaged: line {unreadable} is not a record, but line {number} is. A run that goes on "
                    "leaves out what is none."
                )
            else:
                yield line, record


def parse_record(line: bytes) -> dict[str, Any] | None:
    """The record that a whole line of a metrics.jsonl holds, or None."""
    if not line.endswith(b"\n"):
        return None
    record = json_object(line)
    kind = None if record is None else record.get("kind")
    if record is None or not isinstance(kind, str) or kind not in _NEEDED:
        return None
    whole = all(type(record.get(name)) in types for name, types in _NEEDED[kind].items())
    return record if whole else None


def require_readable(path: Path) -> None:
    """Refuse a metrics.jsonl that a run could not take up; it may not be there.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    if os.path.lexists(path):
        open_to_read(path, _FILE_LIMIT).close()


def evaluations_in(path: Path) -> set[int]:
    """The numbers of the evaluations that a metrics.jsonl holds; none where it is not there.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    if not os.path.lexists(path):
        return set()
    return {record["evaluation"] for _, record in _lines(path, damaged=True) if record["kind"] == "evaluation"}


def totals_before(path: Path, boundary: int) -> Totals:
    """The totals of what `cut_metrics` keeps of a metrics.jsonl; nothing where it is not there.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    totals = Totals()
    pending: list[float] = []
    for _, record in _lines(path, damaged=True) if os.path.lexists(path) else ():
        if record["kind"] == "episode":
            pending.append(float(record["return"]))
            continue
        if record["kind"] == "round" and record["round"] < boundary:
            totals.count(pending)
        elif record["kind"] == "evaluation" and record["round"] <= boundary:
            totals.add_evaluation(record)
        pending = []
    return totals


def cut_metrics(path: Path, boundary: int) -> None:
    """Cut a metrics.jsonl back to a boundary, atomically: a run that resumes there plays the rest again.

    Rounds before `boundary` and their episodes stay, and evaluations of versions up to `boundary`: it is the version
    that the run resumes with. A file that is not there stays so.

    Raises:
        FileError: it is no plain file, or too large. OSError: as the system says it.
    """
    if not os.path.lexists(path):
        return
    kept: list[bytes] = []
    pending: list[bytes] = []
    for line, record in _lines(path, damaged=True):
        if record["kind"] == "evaluation":
            # Episodes that stand before an evaluation belong to a round that was never finished.
            kept += [line] if record["round"] <= boundary else []
            pending = []
        else:
            pending += [line] if record["round"] < boundary else []
            if record["kind"] == "round":
                kept += pending
                pending = []
    write_atomic(path, b"".join(kept))


class MetricsLog:
    """The metrics.jsonl of a run, open for writing; one process may write it.

    Attributes:
        last_round: the newest round in the file; -1: none.
        totals: of all records.
        evaluations: numbers of the evaluations in the file.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, cut off what was not finished, and take up its statistics.

        What is no record is left out: a disk that fails may lose what it had taken.

        Raises:
            FileError: it is too large. OSError: as the system says it.
        """
        self._path = path
        self._fd = _open(path)
        self._doubted = self._torn = False
        try:
            self._take_up()
        except MetricsError:
            write_atomic(path, b"".join(line for line, _ in _lines(path, damaged=True)))
            self._reopen()
            self._take_up()
        os.ftruncate(self._fd, self._size)

    def _take_up(self) -> None:
        """The statistics of what the file holds, and how much of it is finished."""
        self.last_round = -1
        self.totals = Totals()
        self.evaluations: set[int] = set()
        self._size = 0
        position = 0
        pending: list[float] = []
        for line, record in _lines(self._path):
            position += len(line)
            if record["kind"] == "episode":
                pending.append(float(record["return"]))
                continue
            if record["kind"] == "round":
                self.last_round = record["round"]
                self.totals.count(pending)
            else:
                self.evaluations.add(int(record["evaluation"]))
                self.totals.add_evaluation(record)
            pending = []
            self._size = position

    def log_round(self, round_: int, steps: int, values: Values, episodes: Iterable[Episode], envs: int) -> bool:
        """Write down a committed round, and the episodes that ended in it, in one go.

        Args:
            round_: its number (the first, where several stand for one span); must grow.
            steps: the clock at its end: ticks x envs.
            values: what else is known of it; numbers that are not finite become null.
            envs: how many play; an episode's clock is (tick + 1) x envs.

        Returns:
            False if it stood there already: nothing is written then.

        Raises:
            OSError: as the system says it; nothing of the round is in the file then.
        """
        if round_ <= self.last_round:
            return False
        ended = list(episodes)
        lines = [
            {
                "kind": "episode",
                "round": round_,
                "steps": (episode.tick + 1) * envs,
                "env": episode.env,
                "tick": episode.tick,
                "return": episode.total,
                "length": episode.length,
            }
            for episode in ended
        ]
        totals = self.totals.copy()
        totals.count(episode.total for episode in ended)
        statistics = {
            "episodes": totals.episodes,
            "mean_return_100": totals.mean_return_100,
            "best_return": totals.best_return,
        }
        self._append([*lines, {"kind": "round", "round": round_, "steps": steps, **values, **statistics}])
        self.totals = totals
        self.last_round = round_
        return True

    def log_evaluation(self, number: int, round_: int, steps: int, values: Values) -> bool:
        """Write down evaluation `number`, of the version of `round_`; False if it stood there already.

        Raises:
            OSError: as the system says it; nothing of it is in the file then.
        """
        if number in self.evaluations:
            return False
        record = {"kind": "evaluation", "evaluation": number, "round": round_, "steps": steps, **values}
        self._append([record])
        self.evaluations.add(number)
        self.totals.add_evaluation(record)
        return True

    def sync(self) -> None:
        """Force the file to the disk: before a checkpoint, which must not be ahead of it.

        If it was moved or removed, or could not be forced before, it is written again under its name: all of it is
        still behind the descriptor, and what a disk refused once may pass for written at the next try.

        Raises:
            OSError: as the system says it.
        """
        if self._doubted or not self._in_place():
            with open(os.dup(self._fd), "rb") as former:
                former.seek(0)
                write_atomic(self._path, partial(shutil.copyfileobj, former))
            self._reopen()
        self._doubted = True
        os.fsync(self._fd)
        self._doubted = False

    def _reopen(self) -> None:
        """Turn to the file that has the name now."""
        gone, self._fd = self._fd, _open(self._path)
        os.close(gone)

    def _in_place(self) -> bool:
        """Whether the file's name still leads to it."""
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write whole lines, or none of them."""
        data = b"".join(json.dumps(_finite(record)).encode() + b"\n" for record in records)
        if self._torn:
            self._cut()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            self._torn = True
            self._cut()
            raise
        self._size += len(data)

    def _cut(self) -> None:
        """Take back what was written of records that could not be written whole."""
        os.ftruncate(self._fd, self._size)
        self._torn = False


def _open(path: Path) -> int:
    """A descriptor of the file, made if need be, that reads anywhere and writes at its end."""
    return open_to_write(path, os.O_RDWR | os.O_APPEND)


def _finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record that any reader of JSON takes: neither NaN nor infinity."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }
