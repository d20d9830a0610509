"""Programs that run again on another node when theirs is lost. A training continues from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ringside.cluster.hosts import NodeLost
from shared.checkpoint.manifest import CHECKPOINTS

MOST_LOSSES = 5
"""Losses of its node in a row, without a new checkpoint between them, after which a run is given up."""


def newest_checkpoint(run_dir: Path) -> str | None:
    """Name of the newest checkpoint of a run; None: there is none."""
    return max((path.name for path in (run_dir / CHECKPOINTS).glob("checkpoint-*.json")), default=None)


def run_despite_losses(run: Callable[[], int], run_dir: Path, on_loss: Callable[[NodeLost], bool]) -> int | None:
    """Run a program, again as often as its node is lost.

    Args:
        run: runs it from where it is, and returns its exit code.
        run_dir: run directory of its job.
        on_loss: called with each loss; False: do not run it again.

    Returns:
        The exit code; None: it was given up after `MOST_LOSSES`, or not run again.
    """
    lost_in_row, newest = 0, newest_checkpoint(run_dir)
    while True:
        try:
            return run()
        except NodeLost as lost:
            lost_in_row = 1 if newest_checkpoint(run_dir) != newest else lost_in_row + 1
            newest = newest_checkpoint(run_dir)
            if lost_in_row == MOST_LOSSES or not on_loss(lost):
                return None


def given_up(name: str) -> str:
    """Sentence about a run that was given up."""
    return (
        f"{name} was not finished: its node was lost {MOST_LOSSES} times in a row without a new checkpoint. The same "
        "command continues it."
    )
