"""The pixel game by slow emulators: `--env tests.support.slowed:busy`, or `catch`, which is half as slow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.pixel_game import Catch

STEP_SECONDS = 0.01
"""CPU time, so that another program on the same core changes nothing in what a step costs."""


def compute(seconds: float) -> None:
    """Use that much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class SlowCatch(Catch):
    """Frames and rewards of `tests.support.pixel_game:factory`."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self._step_seconds = step_seconds

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Compute for a while, then play."""
        compute(self._step_seconds)
        return super().step(action)


def busy() -> SlowCatch:
    """Steps that cost `STEP_SECONDS` of a core."""
    return SlowCatch(STEP_SECONDS)


def catch() -> SlowCatch:
    """Steps that cost half of it."""
    return SlowCatch(STEP_SECONDS / 2)
