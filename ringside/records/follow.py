"""Follower of a metrics.jsonl while the scribe writes it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ringside.records.metrics import parse_record
from shared.errors import FileError
from shared.files.plain_files import open_to_read

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
        self._path = path
        self._parse = parse
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
            has_more = self._read()
            while self._queue:
                record = self._queue.popleft()
                if record["kind"] != "episode":
                    self._state[record["kind"]] = record[record["kind"]]
                yield record

    def _read(self) -> bool:
        """Queue what was appended. Return True if there may be more."""
        found, is_new_file, has_more = self._follower.read()
        if is_new_file:
            self._episodes.clear()
            self._queue.clear()
        for record in found:
            kind = record["kind"]
            if kind == "episode":
                self._episodes.append(record)
                continue
            if record[kind] > self._state.get(kind, -1):
                self._queue += [*self._episodes, record] if kind == "round" else [record]
            if kind == "round":
                self._episodes.clear()
        return has_more
