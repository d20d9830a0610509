"""Pictures: sizes, native colors, what stands beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ringside.agents.picture import BAR, CHOSEN, GROUND, Montage, Painter, comfortable_scale
from ringside.agents.scene import Scene, ValueRange

NAMES = ("NOOP", "FIRE", "RIGHT", "LEFT")
SCENE = Scene("breakout", 2, 120, 7.0, 1.0, NAMES, 2, False, (0.1, 0.2, 0.4, 0.3))
SCREEN = np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8)


def pixels(picture: np.ndarray, color: tuple[int, int, int]) -> int:
    return int((picture == color).all(axis=2).sum())


@pytest.mark.parametrize(("height", "scale"), [(210, 2), (250, 2), (84, 6), (600, 1)])
def test_a_screen_is_enlarged_by_whole_numbers(height: int, scale: int) -> None:
    assert comfortable_scale(height) == scale


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_the_screen_keeps_its_pixels(scale: int) -> None:
    painter = Painter(210, 160, scale)
    picture = painter.paint(SCREEN, SCENE)
    assert picture.shape == (painter.height, painter.width, 3)
    assert painter.height % 2 == painter.width % 2 == 0
    for y in range(scale):
        for x in range(scale):
            assert np.array_equal(picture[y : 210 * scale : scale, x : 160 * scale : scale], SCREEN)


def test_the_chosen_action_is_marked_and_the_former_scene_is_gone() -> None:
    painter = Painter(210, 160, 2)
    black = np.zeros_like(SCREEN)
    first = painter.paint(black, SCENE).copy()
    assert pixels(first, CHOSEN) > 100
    assert pixels(first, BAR) > 100
    other = painter.paint(black, replace(SCENE, action=0, total=8.0)).copy()
    assert not np.array_equal(first, other)
    assert np.array_equal(painter.paint(black, SCENE), first)
    without_values = painter.paint(black, replace(SCENE, values=None))
    assert pixels(without_values, BAR) == 0


@pytest.mark.parametrize(("height", "scale", "actions"), [(210, 1, 18), (210, 2, 18), (40, 1, 3), (84, 6, 256)])
def test_everything_fits_beneath_each_other(height: int, scale: int, actions: int) -> None:
    painter = Painter(height, 160, scale)
    names = tuple(f"A{i}" for i in range(actions))
    scene = replace(SCENE, actions=names, action=actions - 1, values=tuple(np.linspace(0, 1, actions).tolist()))
    picture = painter.paint(np.zeros((height, 160, 3), np.uint8), scene)
    rows = np.flatnonzero((picture[:, 160 * scale :] == CHOSEN).all(axis=2).any(axis=1))
    assert len(rows)
    assert rows.max() < picture.shape[0] - 1
    if height * scale < picture.shape[0]:
        assert (picture[height * scale :, : 160 * scale] == GROUND).all()


def test_bars_are_of_the_range_of_their_episode() -> None:
    values, scene = ValueRange(), replace(SCENE, episode=0)
    assert values.fractions(replace(scene, values=(1.0, 3.0))) == [0.0, 1.0]
    assert values.fractions(replace(scene, values=(2.0, 2.0))) == [0.5, 0.5]
    assert values.fractions(replace(scene, values=(5.0, 1.0))) == [1.0, 0.0]
    assert values.fractions(replace(scene, episode=1, values=(2.0, 2.0))) == [1.0, 1.0]
    assert values.fractions(replace(scene, values=None, actions=("NOOP", "FIRE"))) == [0.0, 0.0]


def test_bars_of_a_policy_are_its_probabilities() -> None:
    """The range of an episode would show a small probability as a full bar."""
    values = ValueRange()
    for probabilities in ((0.2, 0.3, 0.5), (0.33, 0.33, 0.34)):
        assert values.fractions(replace(SCENE, values=probabilities, has_policy=True)) == list(probabilities)


@pytest.mark.parametrize("places", [1, 2, 8, 30])
def test_a_montage_has_room_for_all(places: int) -> None:
    montage = Montage(210, 160, 1, places)
    for place in range(places):
        montage.place(place, np.full((210, 160, 3), 100 + place, np.uint8), replace(SCENE, episode=place))
    assert all((montage.picture == 100 + place).all(axis=2).sum() >= 210 * 160 for place in range(places))
    assert montage.height % 2 == montage.width % 2 == 0
    if places > 1:
        assert 0.5 < montage.width / montage.height < 3.5
    montage.place(0, np.full((210, 160, 3), 100, np.uint8), replace(SCENE, episode=0, over=True))
    assert (montage.picture == 50).all(axis=2).sum() >= 210 * 160
