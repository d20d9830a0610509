"""Rate limit of the page's pictures, so that an observer costs a run next to nothing.

All CPU time of the page's process counts as the cost of its pictures. A viewer may ask for the next picture when the
cost of the last one is `SHARE` of the time of the usable cores meanwhile. More viewers, more envs or a slower machine
get fewer pictures, not a slower run. Without viewers the process is idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.006
"""Share of the usable cores that the page may take. Dozens of viewers, for whom even a picture every `MOST_SECONDS`
costs more, exceed it."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 5.0
"""Bounds of the interval between two pictures."""
_WEIGHT = 0.4
"""Weight of the newest cost in the running mean."""


class Budget:
    """Running mean of a picture's cost, and the time of the next picture."""

    def __init__(
        self, cores: float, now: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._allowed = SHARE * cores
        self.now, self._cpu = now, cpu
        self._spent_at: float | None = None
        self._cost = 0.0
        self._next_at = now()

    @property
    def due(self) -> bool:
        """True if the next picture may be made."""
        return self.now() >= self._next_at

    @property
    def pause(self) -> float:
        """Seconds until the next picture may be made."""
        return max(0.0, self._next_at - self.now())

    def exclude(self) -> None:
        """Exclude the CPU time since the last picture: loading the page happens once."""
        self._spent_at = self._cpu()

    def charge(self) -> None:
        """Account for a picture: charge the CPU time since the one before, and schedule the next."""
        spent = self._cpu()
        if self._spent_at is not None:
            self._cost += (_WEIGHT if self._cost else 1.0) * (spent - self._spent_at - self._cost)
        self._spent_at = spent
        interval = min(max(self._cost / self._allowed, LEAST_SECONDS), MOST_SECONDS)
        now = self.now()
        # Viewers of different envs also wait for each other's pictures.
        self._next_at = min(max(now, self._next_at) + interval, now + MOST_SECONDS)
