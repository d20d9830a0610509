"""Frames, rewards, lives and ends against Gymnasium's AtariPreprocessing, game by game, bit for bit."""

from dataclasses import replace

import pytest

from actors.envs.atari import games
from shared.config.protocols import PROTOCOLS
from tests.parity.reference import compare

NATURE = PROTOCOLS["nature"]
SOME = ("breakout", "qbert", "air_raid", "pong", "tetris", "yars_revenge", "tic_tac_toe_3d", "amidar", "video_checkers")


@pytest.mark.parametrize("game", ["breakout", "qbert"])
def test_long_play_is_as_in_gymnasium(game: str) -> None:
    assert compare(game, NATURE, 2_000, reset_every=700) > 0


@pytest.mark.parametrize(("game", "longest"), [*zip(SOME, range(200, 204), strict=False)])
def test_truncation_falls_and_looks_as_in_gymnasium(game: str, longest: int) -> None:
    assert compare(game, replace(NATURE, longest_episode_frames=longest), 120, reset_every=1_000) >= 2


RULES = [("nature", 60, 40), ("machado", 200, 90), ("envpool", 120, 30), ("atari100k", 16, 3)]


@pytest.mark.parametrize(("protocol", "steps", "reset_every"), RULES)
@pytest.mark.parametrize("game", SOME)
def test_frames_and_rules_are_as_in_gymnasium(game: str, protocol: str, steps: int, reset_every: int) -> None:
    compare(game, PROTOCOLS[protocol], steps, reset_every=reset_every)


@pytest.mark.parametrize("size", [48, 128])
@pytest.mark.parametrize("game", SOME[:3])
def test_frames_of_another_size_are_as_in_gymnasium(game: str, size: int) -> None:
    compare(game, NATURE, 60, reset_every=40, size=size)


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["nature", "machado", "envpool"])
@pytest.mark.parametrize("game", games())
def test_every_game_plays_long_as_in_gymnasium(game: str, protocol: str) -> None:
    compare(game, PROTOCOLS[protocol], 2_000, reset_every=600)
