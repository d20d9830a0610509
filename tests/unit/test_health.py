"""When the network is said to have died."""

from __future__ import annotations

import pytest

from watch.health import PATIENCE_UPDATES, screens_alike


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
