"""Stacks of a process that crashes, or does not answer: where each of its threads is, in Python's words."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TELL_STACKS = signal.SIGUSR1
"""Asks a process of ours to write its stacks to its standard error, which of a role is its log. It goes on."""


def stacks_told() -> None:
    """From here on this process writes its stacks when it is asked, or dies of a fault (SIGSEGV and the like)."""
    if sys.stderr is None:  # started with it closed
        signal.signal(TELL_STACKS, signal.SIG_IGN)
    else:
        faulthandler.enable()
        faulthandler.register(TELL_STACKS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {TELL_STACKS})


@contextmanager
def stacks_told_later() -> Iterator[None]:
    """Within, start processes that call `stacks_told`: a request that comes earlier waits for that, and ends none."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {TELL_STACKS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
