"""The time that processes have to leave once a run ends."""

from __future__ import annotations

from ringside.supervisor.hang_detector import LATE_SECONDS

GRACE_SECONDS = 8.0
"""Longest time that a process may take to leave when asked."""
SAVE_SECONDS = 120.0
"""Longest silence of the scribe while it writes the last checkpoint."""


class ShutdownTimer:
    """Time since the supervisor asked all processes to leave, counted poll by poll."""

    def __init__(self) -> None:
        self._leaving = self._saving = 0.0
        self._heartbeat = -1

    def count(self, seconds: float, heartbeat: int) -> None:
        """Count the seconds since the last poll; `heartbeat` is the scribe's newest."""
        seconds = min(seconds, LATE_SECONDS)
        self._leaving += seconds
        self._saving = self._saving + seconds if heartbeat == self._heartbeat else 0.0
        self._heartbeat = heartbeat

    @property
    def timed_out(self) -> bool:
        """True if all processes but the scribe should have left."""
        return self._leaving > GRACE_SECONDS

    @property
    def scribe_timed_out(self) -> bool:
        """True if the scribe has been silent for too long."""
        return self._saving > SAVE_SECONDS
