"""Catch: a small pixel game that a network learns within a minute or two.

A block falls from the top; a paddle at the bottom goes left, stays or goes right. An episode is one fall of 12 steps.
Each step that brings the paddle nearer to the block's column, or keeps it below, pays 0.1, each other step nothing; a
block caught pays 1 at the end, a block missed -1. Played at random it returns -0.2 on average, played well 2.2.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

SIDE = 84
CELL = 6
COLUMNS = SIDE // CELL
FALL = 12
PADDLE_ROW = COLUMNS - 1


class Catch(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Observation uint8[84, 84]: block and paddle white on black; actions: left, stay, right."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = Discrete(3)
        self._block = self._paddle = self._row = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a fall; block and paddle stand in columns drawn from the seed."""
        super().reset(seed=seed)
        self._block, self._paddle = (int(column) for column in self.np_random.integers(1, COLUMNS - 1, size=2))
        self._row = 0
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move the paddle, then the block."""
        apart = abs(self._paddle - self._block)
        self._paddle = min(max(self._paddle + int(action) - 1, 1), COLUMNS - 2)
        nearer = abs(self._paddle - self._block) < max(apart, 1)
        self._row += 1
        over = self._row == FALL
        reward = 0.1 if nearer else 0.0
        if over:
            reward += 1.0 if abs(self._paddle - self._block) <= 1 else -1.0
        return self._draw(), reward, over, False, {}

    def _draw(self) -> NDArray[np.uint8]:
        """The paddle is three cells wide, the block one."""
        screen = np.zeros((SIDE, SIDE), np.uint8)
        top, left = self._row * CELL, self._block * CELL
        screen[top : top + CELL, left : left + CELL] = 255
        screen[PADDLE_ROW * CELL :, (self._paddle - 1) * CELL : (self._paddle + 2) * CELL] = 255
        return screen


class ColorCatch(Catch):
    """The same in color and in any size: uint8[side, side, 3], the block red and the paddle green."""

    def __init__(self, side: int = SIDE) -> None:
        super().__init__()
        self._places = np.arange(side) * SIDE // side
        self.observation_space = Box(0, 255, (side, side, 3), np.uint8)

    def _draw(self) -> NDArray[np.uint8]:
        gray = super()._draw()[np.ix_(self._places, self._places)]
        screen = np.zeros((*gray.shape, 3), np.uint8)
        below = self._places >= PADDLE_ROW * CELL
        screen[~below, :, 0], screen[below, :, 1] = gray[~below], gray[below]
        return screen


def factory() -> Catch:
    """The factory of `--env tests.support.pixel_game:factory`."""
    return Catch()
