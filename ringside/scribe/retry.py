"""Retries of what the disk refused, with pauses that grow."""

from __future__ import annotations

import errno
import os
import time

from shared.files import disk_trouble
from shared.memory.parts.board import Board

FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""Pause between two attempts to write to a refusing disk; it doubles from the first value up to the second."""


class Retry:
    """Time at which something is written again that the disk refused; the pause doubles with each refusal."""

    def __init__(self) -> None:
        self.at = 0.0
        self.error = 0
        """errno of the last refusal; 0: there was none, or it was written since."""
        self._seconds = FIRST_RETRY_SECONDS

    @property
    def may_try(self) -> bool:
        """True once the pause is over."""
        return time.monotonic() >= self.at

    def postpone(self, error: OSError) -> None:
        """Count a refusal."""
        self.at, self.error = time.monotonic() + self._seconds, error.errno or errno.EIO
        self._seconds = min(2 * self._seconds, RETRY_SECONDS)

    def succeed(self) -> None:
        """Forget the refusals."""
        self.at, self.error, self._seconds = 0.0, 0, FIRST_RETRY_SECONDS


class Retries:
    """One retry for each kind of record.

    A refusal of one kind delays no other: there may be space for a line, and none for a checkpoint.
    """

    def __init__(self) -> None:
        self.end, self.records, self.segments = Retry(), Retry(), Retry()
        self.checkpoints, self.evaluations = Retry(), Retry()
        self._all = (self.end, self.records, self.segments, self.checkpoints, self.evaluations)
        self._reported: set[tuple[object, ...]] = set()

    def postpone(self, retry: Retry, error: OSError) -> None:
        """Count a refusal of one of them; log it if it is the first of its kind."""
        retry.postpone(error)
        kind = (error.errno, error.strerror, os.path.dirname(str(error.filename)))  # a temporary file has a new name
        if kind not in self._reported:
            self._reported.add(kind)
            disk_trouble.log_line(f"Could not write: {error}. The run continues and retries.")

    def publish(self, board: Board) -> None:
        """Publish what the disk refuses now."""
        board.trouble[0] = next((retry.error for retry in self._all if retry.error), 0)
        board.records_refused[0] = self.records.error != 0

    def succeed(self) -> None:
        """Forget all refusals."""
        for retry in self._all:
            retry.succeed()
