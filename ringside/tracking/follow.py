"""Follower of a metrics.jsonl while the scribe writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from ringside.recording.metrics import parse_record
from shared.files.atomic import open_to_read

READ_BYTES = 64 << 20
"""Bytes of one read: far more than the records of one round."""


class Follower:
    """Yields every complete record of a metrics.jsonl once, in order.
    A resume may truncate and extend the file: records that were returned already are not returned again.

    Attributes:
        last_round: newest round returned; -1: none.
        last_evaluation: newest evaluation returned; -1: none.
    """

    def __init__(self, path: Path, last_round: int = -1, last_evaluation: int = -1) -> None:
        self.last_round = last_round
        self.last_evaluation = last_evaluation
        self._path = path
        self._inode = -1
        self._offset = 0

    def new_records(self) -> list[dict[str, Any]]:
        """New records; none if the file does not exist yet.

        Episodes come with their round: the record of a round follows all of its episodes.
        """
        try:
            with open_to_read(self._path) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset = status.st_ino, 0
                return self._rest(file)
        except FileNotFoundError:
            return []

    def _rest(self, file: BinaryIO) -> list[dict[str, Any]]:
        """Complete groups beyond the offset, read in parts because a foreign file may hold no line break."""
        found: list[dict[str, Any]] = []
        begin = -1
        while self._offset > begin:
            begin = self._offset
            file.seek(begin)
            found += self._whole(file.read(READ_BYTES))
        return found

    def _whole(self, data: bytes) -> list[dict[str, Any]]:
        """Complete groups of records; advances the offset past them."""
        found: list[dict[str, Any]] = []
        pending: list[dict[str, Any]] = []
        position = 0
        for line in data.splitlines(keepends=True):
            record = parse_record(line)
            if record is None:
                break
            position += len(line)
            pending.append(record)
            if record["kind"] != "episode":
                found += [each for each in pending if self._is_new(each)]
                self._offset += position
                position, pending = 0, []
                self._count(record)
        return found

    def _is_new(self, record: dict[str, Any]) -> bool:
        if record["kind"] == "evaluation":
            return int(record.get("evaluation", -1)) > self.last_evaluation
        return int(record["round"]) > self.last_round

    def _count(self, record: dict[str, Any]) -> None:
        if record["kind"] == "evaluation":
            self.last_evaluation = max(self.last_evaluation, int(record.get("evaluation", -1)))
        else:
            self.last_round = max(self.last_round, int(record["round"]))
