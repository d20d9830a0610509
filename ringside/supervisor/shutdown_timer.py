"""How long those who are asked to leave may take."""

from __future__ import annotations

from ringside.supervisor.hang_detector import LATE_SECONDS

GRACE_SECONDS = 8.0
"""How long a process may take to leave when asked."""
SAVE_SECONDS = 120.0
"""How long the scribe may be silent while it writes the last checkpoint."""


class ShutdownTimer:
    """Of the supervisor, from when it asks everybody to leave.

    Time is counted look by look, as in a vigil: while the supervisor itself was stopped (Ctrl-Z), or the machine slept,
    so was everybody.
    """

    def __init__(self) -> None:
        self._leaving = self._saving = 0.0
        self._heartbeat = -1

    def look(self, seconds: float, heartbeat: int) -> None:
        """Count the time since the last look.

        Args:
            seconds: since then.
            heartbeat: the newest of the scribe.
        """
        seconds = min(seconds, LATE_SECONDS)
        self._leaving += seconds
        self._saving = self._saving + seconds if heartbeat == self._heartbeat else 0.0
        self._heartbeat = heartbeat

    @property
    def over(self) -> bool:
        """Whether everybody but the scribe should have left."""
        return self._leaving > GRACE_SECONDS

    @property
    def scribe_timed_out(self) -> bool:
        """Whether the scribe, too, has been silent for too long."""
        return self._saving > SAVE_SECONDS
