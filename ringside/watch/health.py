"""Health of learning: a network that no longer distinguishes screens, a policy that no longer explores, and returns
outside the support of c51."""

from __future__ import annotations

import math

PATIENCE_UPDATES = 20_000
"""Earlier, a healthy network may give all screens the same value (docs/lab/2026-11-pong.md)."""
ALIKE = 2e-3
"""Ratio of max Q's standard deviation over a batch to its mean that counts as zero. Dead networks had less than 5e-4,
healthy networks more than 1e-2."""
LEAST_BATCH = 8
"""Smaller batches may contain only similar screens."""
_DEAD = (
    f"After {PATIENCE_UPDATES:,} updates and more, Q is still the same number for all screens (q_spread in "
    "metrics.jsonl): the network has probably died (no unit that sees the screen is active). Start a new run with a "
    "smaller --learning-rate or another --seed."
)

COLLAPSED = 0.01
"""Share of the entropy of uniform play below which a policy counts as fixed."""
EARLY = 0.1
"""Share of a run before which a policy should not be fixed; later it may have learned what to do."""

OUTSIDE = 0.01
"""Share of the returns outside the support from which a warning appears."""


def screens_alike(mean_q: float | None, q_spread: float | None, updates: int, batch: int) -> str | None:
    """Warning of a network that gives all screens the same values, or None; the text is always the same.

    If all values are close to 0, as before the first reward of a game, the ratio is not small and no warning appears.

    Args:
        mean_q, q_spread: metrics of that name; None: not known, or the method has none.
        updates: of the run so far.
        batch: screens over which the spread was computed.
    """
    if mean_q is None or q_spread is None or updates < PATIENCE_UPDATES or batch < LEAST_BATCH:
        return None
    return _DEAD if q_spread < ALIKE * abs(mean_q) else None


def policy_collapsed(entropy: float | None, actions: int, share: float, *, has_weight: bool) -> str | None:
    """Warning of a policy that hardly explores since early in a run, or None; the text is always the same.

    Args:
        entropy: metric of that name; None: not known, or the method has none.
        actions: size of the action set.
        share: of the run that is over, in [0, 1].
        has_weight: True if the method has the setting --entropy-weight.
    """
    if entropy is None or share >= EARLY or entropy >= COLLAPSED * math.log(actions):
        return None
    return (
        f"Before {EARLY:.0%} of the run, the entropy of the policy fell below {COLLAPSED:.0%} of that of uniform play "
        "(entropy in metrics.jsonl): the agent takes nearly always the same action in a state, and explores no more. "
        f"Start a new run with {'a larger --entropy-weight, ' if has_weight else ''}a smaller --learning-rate or "
        "another --seed."
    )


def returns_outside(share: float | None, v_min: float, v_max: float, *, clipped: bool) -> str | None:
    """Warning of returns outside the support, or None; the text is always the same.

    Args:
        share: `outside_support` of the newest record; None: not known, or the method has no support.
        v_min, v_max: the support's ends.
        clipped: True if rewards are clipped.
    """
    if share is None or share < OUTSIDE:
        return None
    return (
        f"Returns leave the support (outside_support in metrics.jsonl): what lies beyond --v-min {v_min:g} or --v-max "
        f"{v_max:g} counts as its end, so actions that lead there look alike. A wider support"
        f"{'' if clipped else ', or --clip-rewards,'} would tell them apart."
    )
