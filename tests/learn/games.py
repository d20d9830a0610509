"""Games that tell apart how an agent learns: one that needs memory, and one whose rewards mean nothing."""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from tests.support.pixel_game import SIDE, Catch

STEPS = 6
SHOWN = 2
CELL = 12


class Cue(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Needs memory: a cue is shown, disappears, and decides the reward of the last action.

    Observation uint8[84, 84]; actions: left, right. An episode has 6 steps. The first two observations show a block at
    the left or at the right edge; a bar at the bottom counts the steps. The last action earns 1 if it is the side of
    the cue, else -1; all others nothing. The four frames of the last observation lack the cue, so without memory the
    mean return is 0 whatever is played.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = Discrete(2)
        self._cue = self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, whose cue is drawn from the seed."""
        super().reset(seed=seed)
        self._cue, self._step = int(self.np_random.integers(2)), 0
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Count the step; the last one is judged."""
        self._step += 1
        over = self._step == STEPS
        reward = (1.0 if int(action) == self._cue else -1.0) if over else 0.0
        return self._draw(), reward, over, False, {}

    def _draw(self) -> NDArray[np.uint8]:
        screen = np.zeros((SIDE, SIDE), np.uint8)
        screen[-6:, : SIDE * self._step // STEPS] = 255
        if self._step < SHOWN:
            left = self._cue * (SIDE - 2 * CELL)
            screen[CELL : 4 * CELL, left : left + 2 * CELL] = 255
        return screen


class Shuffled(Catch):
    """Pays at each step the reward of a random one of the last 241 steps instead of its own: as many of each."""

    def __init__(self) -> None:
        super().__init__()
        self._paid = deque[float](maxlen=241)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *ends = super().step(action)
        self._paid.append(reward)
        return observation, self._paid[int(self.np_random.integers(len(self._paid)))], *ends
