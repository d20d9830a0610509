"""Games with Gymnasium's preprocessing, for comparison with ours.

    python launch.py --env benchmarks.wrapped_game:make --env-kwargs game=pong

A step reads two gray screens from the emulator, takes their maximum and resizes it with OpenCV. Lost lives are not
reported, as the interface of `--env` has no field for them.
"""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.registration import rom_id_to_name
from gymnasium.wrappers import AtariPreprocessing

from shared.config.protocols import PROTOCOLS


class Wrapped(AtariPreprocessing):
    """`AtariPreprocessing` whose seed determines only the number of no-ops.

    For every seed ale-py loads the game again, in 90 ms. Users seed once and do not pay this cost at each reset.
    Without sticky actions the seed has no other effect.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self.unwrapped.np_random = np.random.default_rng(seed)
        return super().reset(options=options)


def make(game: str) -> Wrapped:
    """One game of ale-py by the rules of the protocol `nature`, but without ends of lives."""
    gymnasium.register_envs(ale_py)
    name = f"ALE/{rom_id_to_name(game)}-v5"
    frames = gymnasium.make(name, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return Wrapped(frames, noop_max=PROTOCOLS["nature"].noop_max, frame_skip=4, screen_size=84, grayscale_obs=True)
