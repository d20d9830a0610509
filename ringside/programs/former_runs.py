"""Runs of a launcher that was killed. They save and end by themselves, and hold their directories until then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shared.files.lock import is_locked, wait_until_free
from shared.process.ownership import LOCK_FILE

FORMER_RUN_SECONDS = 200.0
"""Longest wait for one: longer than the lease of a node and the saving after it."""


def wait_for_former(run_dir: Path, is_stopped: Callable[[], bool], say: Callable[[str], None]) -> bool:
    """Wait until no other launcher holds a run directory; False if one still does at the end of the wait.

    Args:
        run_dir: directory of a run that is to begin or to continue.
        is_stopped: True once there is no use in waiting.
        say: called with a sentence, once, if there is something to wait for.
    """
    lock = run_dir / LOCK_FILE
    if not is_locked(lock):
        return True
    say(f"{run_dir} is in use by a run that may still be saving; waiting for its end.")
    return wait_until_free(lock, FORMER_RUN_SECONDS, is_stopped)
