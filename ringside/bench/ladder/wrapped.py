"""Games behind Gymnasium's own preprocessing (`--env ringside.bench.ladder.wrapped:pong`), the measure of ours.

A step asks the emulator for two gray screens, takes their maximum and shrinks it with OpenCV. The name behind the colon
is any game, as in ale-py. Lost lives are not told, since an `--env` has no word for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.registration import rom_id_to_name
from gymnasium.wrappers import AtariPreprocessing

from shared.config.protocols import PROTOCOLS


class Wrapped(AtariPreprocessing):
    """`AtariPreprocessing` whose seeds decide the number of no-ops and nothing else.

    ale-py loads the game again for every seed, 90 ms, which nobody pays who seeds once, as users do. Without sticky
    actions there is nothing else that a seed could decide.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self.unwrapped.np_random = np.random.default_rng(seed)
        return super().reset(options=options)


def make(game: str) -> Wrapped:
    """One game by the rules of protocol `nature`, without the ends of lives."""
    gymnasium.register_envs(ale_py)
    name = f"ALE/{rom_id_to_name(game)}-v5"
    frames = gymnasium.make(name, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return Wrapped(frames, noop_max=PROTOCOLS["nature"].noop_max, frame_skip=4, screen_size=84, grayscale_obs=True)


def __getattr__(game: str) -> Callable[[], Wrapped]:
    """`make` for this game."""
    if game.startswith("_"):
        raise AttributeError(game)
    return partial(make, game)
