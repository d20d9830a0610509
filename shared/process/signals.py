"""Signals of a run's processes: requests to stop (SIGINT, SIGTERM and SIGHUP), and requests for stacks (SIGUSR1)."""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECOND_AFTER_SECONDS = 1.0
"""A second signal counts from then on: terminals and `timeout` send one twice."""

TELL_STACKS = signal.SIGUSR1
"""Asks a process of a run to write its stacks to its standard error, a role's log. The process continues."""


Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Within this context handle signals in another way."""
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def handle_stop_signals(on_signal: Callable[[int], None]) -> AbstractContextManager[None]:
    """Within this context call `on_signal` with the number of each signal; an ignored one (nohup) stays ignored."""
    heard = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return _handled(dict.fromkeys(heard, lambda number, frame: on_signal(number)))


def killed_by_interrupt() -> AbstractContextManager[None]:
    """Within this context Ctrl-C kills the process, for a command whose libraries load.

    An exception in the middle of an import aborts some libraries, and others lose it.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return _handled({signal.SIGINT: signal.SIG_DFL} if is_default else {})


def ignore_requests() -> None:
    """Ignore all requests to stop from here on, for a program that has done its work."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Requests:
    """Number of times that a user asked the run to stop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted_at = 0.0
        self.count = 0
        self.hurries = False
        """True if the first request was no Ctrl-C: its sender may kill the run soon."""

    def count_signal(self, number: int) -> None:
        """Count a signal. A closed terminal counts only if it is the first."""
        now = self._clock()
        self.hurries = self.hurries or (not self.count and number != signal.SIGINT)
        if not self.count or (number != signal.SIGHUP and now - self._counted_at > SECOND_AFTER_SECONDS):
            self.count += 1
            self._counted_at = now


def enable_stack_dumps() -> None:
    """Have this process write its stacks on `TELL_STACKS`, and when it dies of a fault (SIGSEGV and the like)."""
    if sys.stderr is None:  # started with it closed
        signal.signal(TELL_STACKS, signal.SIG_IGN)
    else:
        faulthandler.enable()
        faulthandler.register(TELL_STACKS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {TELL_STACKS})


@contextmanager
def stack_dumps_held_back() -> Iterator[None]:
    """Start processes within this context: a request for stacks waits until they have called `enable_stack_dumps`."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {TELL_STACKS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
