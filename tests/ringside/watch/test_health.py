"""Warnings of a dead network, and of returns outside the support."""

from __future__ import annotations

import pytest

from ringside.watch.observer import OUTSIDE, PATIENCE_UPDATES, policy_collapsed, returns_outside, screens_alike


@pytest.mark.parametrize(
    ("mean_q", "q_spread", "updates", "warned"),
    [
        (-2.42, 0.0002, PATIENCE_UPDATES, True),
        (4.0, 0.0, PATIENCE_UPDATES, True),
        (-2.42, 0.0002, PATIENCE_UPDATES - 1, False),  # it may yet come to life
        (-1.8, 0.06, PATIENCE_UPDATES, False),
        (0.001, 0.0002, PATIENCE_UPDATES, False),  # there was no reward so far
        (0.0, 0.0, PATIENCE_UPDATES, False),
        (None, None, PATIENCE_UPDATES, False),
    ],
)
def test_only_a_network_that_had_time_and_values_to_tell_apart(
    mean_q: float | None, q_spread: float | None, updates: int, warned: bool
) -> None:
    assert (screens_alike(mean_q, q_spread, updates, 32) is not None) == warned


def test_one_screen_is_always_like_itself() -> None:
    assert screens_alike(-2.42, 0.0, PATIENCE_UPDATES, 1) is None


@pytest.mark.parametrize(
    ("entropy", "actions", "share", "warned"),
    [
        (0.013, 4, 0.05, True),  # ln 4 is 1.386
        (0.0, 18, 0.0, True),
        (0.014, 4, 0.05, False),
        (0.013, 4, 0.1, False),  # it may have learned what to do
        (0.013, 2, 0.05, False),
        (None, 4, 0.05, False),
    ],
)
def test_a_policy_that_is_fixed_early_is_warned_of(
    entropy: float | None, actions: int, share: float, warned: bool
) -> None:
    found = policy_collapsed(entropy, actions, share, has_weight=True)
    assert (found is not None) == warned
    assert found is None or "a larger --entropy-weight, a smaller --learning-rate" in found
    plain = policy_collapsed(entropy, actions, share, has_weight=False)
    assert plain is None or "--entropy-weight" not in plain


def test_a_support_that_returns_leave_is_said() -> None:
    said = returns_outside(0.25, -10.0, 20.0, clipped=False)
    assert said == (
        "Returns leave the support (outside_support in metrics.jsonl): what lies beyond --v-min -10 or --v-max 20 "
        "counts as its end, so actions that lead there look alike. A wider support, or --clip-rewards, would tell them "
        "apart."
    )
    assert returns_outside(0.25, -10.0, 20.0, clipped=True) == said.replace(", or --clip-rewards,", "")
    assert returns_outside(OUTSIDE / 2, -10.0, 20.0, clipped=False) is None
    assert returns_outside(None, -10.0, 20.0, clipped=False) is None
