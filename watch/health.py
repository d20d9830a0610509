"""What the learner's figures say of the network: whether it still tells screens apart."""

from __future__ import annotations

PATIENCE_UPDATES = 20_000
"""Before that, a network that lives may have learned no more than one number for all screens (docs/performance.md)."""
ALIKE = 2e-3
"""Share of the mean of max Q below which its standard deviation over a batch is taken for none. Networks that had died
had less than 5e-4, networks that lived more than 1e-2 of it."""
LEAST_BATCH = 8
"""Fewer screens may well be alike."""
_DEAD = (
    f"After {PATIENCE_UPDATES:,} updates and more, Q is still the same number for all screens (q_spread in "
    "metrics.jsonl): the network has probably died, no unit that sees the screen is on any more. Begin anew with a "
    "smaller --learning-rate or another --seed."
)


def screens_alike(mean_q: float | None, q_spread: float | None, updates: int, batch: int) -> str | None:
    """The warning of a network that gives all screens the same values, where it is due: always in the same words.

    Where all values are next to 0, as in a game without a reward so far, the share is no small one: nothing is said.

    Args:
        mean_q, q_spread: `learner.update.RoundMetrics`; None: not known.
        updates: done in the run.
        batch: screens among which the spread was taken.
    """
    if mean_q is None or q_spread is None or updates < PATIENCE_UPDATES or batch < LEAST_BATCH:
        return None
    return _DEAD if q_spread < ALIKE * abs(mean_q) else None
