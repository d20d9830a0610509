"""Frames of the protocol `dqn_zoo` against its own recipe: numpy and Pillow on the emulator's RGB screens."""

import numpy as np
import pytest
from PIL import Image

from actors.env import Shot
from actors.envs.atari import AtariEnv
from actors.pixels.bilinear import LUMA, shrink_bilinear
from shared.config.protocols import PROTOCOLS


def pillow(gray: np.ndarray, size: int = 84) -> np.ndarray:
    """A gray image shrunk by Pillow, across and then down; Pillow 13 takes tall images in the other order at once."""
    across = Image.fromarray(gray).resize((size, gray.shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(across.resize((size, size), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("shape", [(210, 160), (250, 160), (230, 160), (84, 84), (60, 40), (400, 600)])
def test_images_are_shrunk_as_by_pillow(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[0])
    for colors, size in ((2, 84), (3, 84), (256, 84), (256, 64)):
        gray = (rng.integers(0, colors, shape) * (255 // (colors - 1))).astype(np.uint8)
        out = np.empty((size, size), np.uint8)
        shrink_bilinear(gray, out)
        assert np.array_equal(out, pillow(gray, size))


@pytest.mark.parametrize("game", ["pong", "breakout", "seaquest", "air_raid", "pitfall"])
def test_steps_show_the_frames_of_the_recipe(game: str) -> None:
    env = AtariEnv(game, PROTOCOLS["dqn_zoo"], 3, 0, training=True)
    env.film((shots := list[Shot]()).append)
    frame, rng = np.empty((84, 84), np.uint8), np.random.default_rng(0)
    env.reset(0, frame)
    compared = 0
    for tick in range(300):
        outcome = env.step(tick, int(rng.integers(env.actions)), frame)
        if outcome.terminated or outcome.truncated:
            env.reset(tick + 1, frame)
            continue
        third, fourth = shots[-2].screen, shots[-1].screen
        luma = np.tensordot(np.maximum(third, fourth), LUMA, (-1, 0)).astype(np.uint8)  # rounded down
        assert np.array_equal(frame, pillow(luma))
        compared += 1
    assert compared > 200
