"""Stacks of a process that crashes, or does not answer: where each of its threads is, in Python's words."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TELL_STACKS = signal.SIGUSR1
"""Asks a process of ours to write its stacks to its standard error, which of a role is its log. It goes on."""


def enable_stack_dumps() -> None:
    """From here on this process writes its stacks when it is asked, or dies of a fault (SIGSEGV and the like)."""
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
