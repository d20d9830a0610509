"""What a run's figures say of its learning: whether the network still tells screens apart, and whether the support of
its distributions holds the returns."""

from __future__ import annotations

PATIENCE_UPDATES = 20_000
"""Before that, a live network may give all screens the same value (docs/lab/2026-11-pong.md)."""
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

OUTSIDE = 0.01
"""Share of the returns outside the support from which it is worth a word."""


def screens_alike(mean_q: float | None, q_spread: float | None, updates: int, batch: int) -> str | None:
    """The warning of a network that gives all screens the same values, where it is due: always in the same words.

    Where all values are next to 0, as in a game without a reward so far, the share is no small one: nothing is said.

    Args:
        mean_q, q_spread: `learner.engine.round_means.RoundMetrics`; None: not known.
        updates: done in the run.
        batch: screens among which the spread was taken.
    """
    if mean_q is None or q_spread is None or updates < PATIENCE_UPDATES or batch < LEAST_BATCH:
        return None
    return _DEAD if q_spread < ALIKE * abs(mean_q) else None


def returns_outside(share: float | None, v_min: float, v_max: float, *, clipped: bool) -> str | None:
    """The warning of a support that returns leave, where it is due: always in the same words.

    Args:
        share: `outside_support` of the newest span; None: not known, or a method without a support.
        v_min, v_max: the support's ends.
        clipped: whether rewards are.
    """
    if share is None or share < OUTSIDE:
        return None
    return (
        f"Returns leave the support (outside_support in metrics.jsonl): what lies beyond --v-min {v_min:g} or --v-max "
        f"{v_max:g} counts as its end, so actions that lead there look alike. A wider support"
        f"{'' if clipped else ', or --clip-rewards,'} would tell them apart."
    )
