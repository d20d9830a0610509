"""Envs that fail, or that make others fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import multiprocess
import numpy as np

from tests.support.pixel_game import Catch

MEAL = 4 << 30
"""Bytes."""


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


class Hungry(Catch):
    """Once in a run takes more memory than it may, at its fiftieth step."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark = mark
        self._steps = 0

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps == 50 and not self._mark.exists():
            self._mark.touch()
            np.ones(MEAL, np.uint8)
        return super().step(action)


def hungry() -> Hungry:
    """`--env tests.crash.failing:hungry`; the environment variable MARK names a file that says that it has eaten."""
    return Hungry(Path(os.environ["MARK"]))


def haunted() -> Catch:
    """`--env tests.crash.failing:haunted`: an actor leaves a process behind, which holds all that its own held.

    The environment variable GHOSTS names a file in which the processes stand.
    """
    if multiprocess.parent_process() is not None:  # the launcher asks for the actions, too
        if not (ghost := os.fork()):
            signal.pause()
        with open(os.environ["GHOSTS"], "a") as file:
            file.write(f"{ghost}\n")
    return Catch()
