"""Screens of an env, for people who watch. Training never asks for them, so they cost it nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Shot(NamedTuple):
    """One screen, as a person would see it."""

    screen: NDArray[np.uint8]
    """uint8[height, width, 3], RGB, in the env's own size."""
    reward: float
    """Unclipped reward that came with it."""


class FilmedEmulator:
    """An `ALEInterface` that also keeps every frame that it plays."""

    def __init__(self, ale: Any, shots: list[Shot]) -> None:
        self._ale = ale
        self._shots = shots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)

    def act(self, action: int) -> int:
        """Act, and keep the frame; beyond the end of a game the emulator plays nothing."""
        over = self._ale.game_over()
        reward: int = self._ale.act(action)
        if not over:
            self._shots.append(Shot(self._ale.getScreenRGB(), reward))
        return reward


def in_color(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image of shape (h, w), (h, w, 1) or (h, w, 3) as uint8[h, w, 3]."""
    if image.ndim == 3 and image.shape[2] == 3:
        return image
    return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
