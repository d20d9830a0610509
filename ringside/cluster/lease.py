"""A lease: work on a node lasts only as long as its launcher calls.

A launcher that hears nothing of a node has the work done elsewhere. So the node, which cannot know, must end it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LEASE_SECONDS = 60.0
"""Longest time without a call."""
_POLL_SECONDS = 0.5


class Lease:
    """Calls a function once nothing has renewed the lease for too long."""

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        """Begin the lease; `on_expiry` is called in a thread of its own."""
        self._seconds, self._on_expiry = seconds, on_expiry
        self._renewed_at = time.monotonic()
        self._given_up = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def renew(self) -> None:
        """Begin the time again."""
        self._renewed_at = time.monotonic()

    def give_up(self) -> None:
        """End the lease without a call."""
        self._given_up.set()

    def _watch(self) -> None:
        while not self._given_up.wait(min(_POLL_SECONDS, self._seconds)):
            if time.monotonic() - self._renewed_at > self._seconds:
                self._on_expiry()
                return
