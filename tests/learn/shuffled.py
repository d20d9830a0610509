"""The pixel game with its rewards shuffled over time: as many of each, at moments that mean nothing."""

from __future__ import annotations

from typing import Any

import gymnasium

from tests.support import pixel_game


class Shuffled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays at each step the reward of a random one of the last steps instead of its own."""

    MEMORY = 240

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._paid: list[float] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._paid = [*self._paid[-self.MEMORY :], float(reward)]
        drawn = self._paid[int(self.unwrapped.np_random.integers(len(self._paid)))]
        return observation, drawn, terminated, truncated, info


def factory() -> gymnasium.Env[Any, Any]:
    """The factory of `--env tests.learn.shuffled:factory`."""
    return Shuffled(pixel_game.factory())
