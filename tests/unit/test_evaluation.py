"""Evaluation beside training: which versions are judged, and what is left of it."""

from __future__ import annotations

import numpy as np
import pytest

from actors.evaluation import play_episodes
from shared.config import FRAME_SIDE, STACK, Play
from shared.evaluation import evaluations_until
from tests.pixel_game import Catch


@pytest.mark.parametrize("every", [1, 7, 10, 25, 480, 1_000])
@pytest.mark.parametrize("round_steps", [10, 32, 480])
def test_a_version_is_judged_after_each_round_that_reaches_a_multiple(round_steps: int, every: int) -> None:
    due = 0
    for boundary in range(1, 60):
        due += any(step % every == 0 for step in range((boundary - 1) * round_steps + 1, boundary * round_steps + 1))
        assert evaluations_until(boundary, round_steps, every) == due
    assert evaluations_until(0, round_steps, every) == evaluations_until(9, round_steps, 0) == 0


def test_envs_are_closed_when_they_have_played(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones: list[Catch] = []
    monkeypatch.setattr("tests.pixel_game.factory", lambda: open_ones.append(Catch()) or open_ones[-1])
    monkeypatch.setattr(Catch, "close", lambda self: open_ones.remove(self))
    stacks = np.zeros((3, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
    played = play_episodes(Play(env="tests.pixel_game:factory"), 1, 0, 5, stacks, lambda: np.zeros(3, np.uint8))
    assert (played.lengths > 0).all()
    assert not open_ones
