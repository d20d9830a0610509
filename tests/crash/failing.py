"""Envs that fail in ways that a restart cannot mend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.pixel_game import Catch


class Failing(Catch):
    """Works for fifty steps, then raises."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps == 50:
            raise RuntimeError("the cartridge fell out")
        return super().step(action)


def raises() -> Failing:
    """`--env tests.crash.failing:raises`."""
    return Failing()
