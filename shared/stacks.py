"""Stacks of a process that crashes, or does not answer: where each of its threads is, in Python's words."""

from __future__ import annotations

import faulthandler
import signal
import sys

TELL_STACKS = signal.SIGUSR1
"""Asks a process of ours to write its stacks to its standard error, which of a role is its log. It goes on."""


def stacks_told() -> None:
    """From here on this process writes its stacks when it is asked, or dies of a fault (SIGSEGV and the like)."""
    if sys.stderr is None:  # started with it closed
        return
    faulthandler.enable()
    faulthandler.register(TELL_STACKS)
