"""An environment whose step costs what it is told to: to make emulation slow, or next to nothing.

`--env tests.support.slowed:idle` costs nothing, `--env tests.support.slowed:busy` computes for `STEP_SECONDS` of CPU
time a step of a run, and `--env tests.support.slowed:catch`, the pixel game, for half of that.
"""

import time
from functools import partial
from typing import Any

import gymnasium
import multiprocess
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from shared.frame_shape import FRAME_SIDE
from tests.support.pixel_game import Catch

STEP_SECONDS = 0.01
"""CPU time, so that another program on the same core changes nothing in what a step costs."""
EPISODE_STEPS = 50


def in_a_run() -> bool:
    """True in a process that plays for a run; False where an env is looked at before the start."""
    return multiprocess.current_process().name.startswith(("actor", "worker"))


def compute(seconds: float) -> None:
    """Use that much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Slowed(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Observation uint8[84, 84], gray by the step's number; two actions, of which the second pays."""

    def __init__(self, step_seconds: float) -> None:
        self.observation_space = Box(0, 255, (FRAME_SIDE, FRAME_SIDE), np.uint8)
        self.action_space = Discrete(2)
        self._step_seconds = step_seconds
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin at step 0."""
        super().reset(seed=seed)
        self._steps = 0
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Compute for as long as told."""
        compute(self._step_seconds if in_a_run() else 0.0)
        self._steps += 1
        return self._draw(), float(action), self._steps == EPISODE_STEPS, False, {}

    def _draw(self) -> NDArray[np.uint8]:
        return np.full((FRAME_SIDE, FRAME_SIDE), self._steps, np.uint8)


idle, busy = partial(Slowed, 0.0), partial(Slowed, STEP_SECONDS)


class SlowCatch(Catch):
    """The pixel game, by slow emulators: slower than any learner learns it."""

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Compute for a while, then play."""
        compute(STEP_SECONDS / 2)
        return super().step(action)


catch = SlowCatch
