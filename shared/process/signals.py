"""Requests to stop: SIGINT, SIGTERM and SIGHUP, which are answered instead of died of."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECOND_AFTER_SECONDS = 1.0
"""From when on a second signal counts as asking again: terminals and `timeout` send one twice."""


@contextmanager
def handle_stop_signals(hear: Callable[[int], None]) -> Iterator[None]:
    """Within, have `hear` called with the number of each; who is told to ignore one (nohup) ignores it."""

    def handle(number: int, frame: FrameType | None) -> None:
        hear(number)

    former = {
        number: signal.signal(number, handle) for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ignore_requests() -> None:
    """From here on none changes anything: for a program that has done its work and only has to go."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Requests:
    """How often a user asked for the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at = 0.0
        self.count = 0

    def hear(self, number: int) -> None:
        """A signal came. A closed terminal asks once, whatever was asked before."""
        now = self._clock()
        if not self.count or (number != signal.SIGHUP and now - self._first_at > SECOND_AFTER_SECONDS):
            self.count += 1
            self._first_at = now
