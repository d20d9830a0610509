"""How often pictures may be made, so that looking on costs a run next to nothing.

All that the page's process does is charged to its pictures: the next one may be asked for only when the CPU time that
the last one cost is `SHARE` of what the usable cores gave meanwhile. More viewers, more envs or a slower machine make
fewer pictures, not a slower run. Nothing is done when nobody looks on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.006
"""Of the time of all usable cores: what looking on may take. With dozens of viewers, for whom even a picture every
`MOST_SECONDS` costs more, it takes more."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 5.0
"""Between two pictures."""
_WEIGHT = 0.4
"""Of the newest cost in the running mean."""


class Budget:
    """The cost of a picture so far, and what follows from it."""

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
        """Whether the next picture may be made."""
        return self.now() >= self._next_at

    @property
    def pause(self) -> float:
        """Seconds until it may."""
        return max(0.0, self._next_at - self.now())

    def forgive(self) -> None:
        """What the process has spent since the last picture is not charged: the page was loaded, once."""
        self._spent_at = self._cpu()

    def charge(self) -> None:
        """A picture was made: settle what the process has spent since the one before."""
        spent = self._cpu()
        if self._spent_at is not None:
            self._cost += (_WEIGHT if self._cost else 1.0) * (spent - self._spent_at - self._cost)
        self._spent_at = spent
        interval = min(max(self._cost / self._allowed, LEAST_SECONDS), MOST_SECONDS)
        now = self.now()
        # Viewers who look at different things wait for each other's pictures, too.
        self._next_at = min(max(now, self._next_at) + interval, now + MOST_SECONDS)
