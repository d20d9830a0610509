"""How often a role may die: whose fault a death was, and how many in a row, without progress between them, end a run.

Progress is work that no life of the role did before (`furthest` on the board). What a role does again does not count: a
death that comes at the same place every time is to end the run.
"""

from __future__ import annotations

import signal
from collections import Counter
from enum import Enum


class Cause(Enum):
    """Whose fault a death was; the value is how many in a row end the run."""

    OWN = 5
    """The role's own: an exception, a signal such as SIGSEGV, a lack of memory, a hang."""
    DEVICE = 2
    """The GPU's: one clean restart. A card that fails again fails for good, and every life leaves it less memory."""
    OUTSIDE = 100
    """SIGKILL from outside says nothing about the program. It is bounded all the same, or whoever kills a role as soon
    as it lives would keep the run from ever ending."""


class Deaths:
    """Those of one role."""

    def __init__(self) -> None:
        self._furthest = -1
        self._counts: Counter[Cause] = Counter()

    def add(self, cause: Cause, furthest: int) -> int:
        """Note a death, with the furthest point that the role has come to; returns how many of the cause in a row."""
        if furthest > self._furthest:
            self._counts.clear()
        self._furthest = furthest
        self._counts[cause] += 1
        return self._counts[cause]

    @property
    def by_fault(self) -> int:
        """Deaths in a row without progress that somebody outside is not to blame for."""
        return self._counts[Cause.OWN] + self._counts[Cause.DEVICE]


def signal_name(number: int) -> str:
    """SIGKILL of 9; real-time signals have no names."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
