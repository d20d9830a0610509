"""The small pixel game, and the same with one bit of one frame of one episode flipped."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from tests.support import pixel_game


class _Flipped(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Flips one bit of the observation once, after a few hundred steps."""

    _seen = 0

    def observation(self, observation: Any) -> Any:
        self._seen += 1
        if self._seen == 100:
            observation = np.array(observation)
            observation[40, 40] ^= 1
        return observation


def plain() -> gymnasium.Env[Any, Any]:
    return pixel_game.factory()


def flipped() -> gymnasium.Env[Any, Any]:
    return _Flipped(pixel_game.factory())
