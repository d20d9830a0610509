"""Envs that fail, or that make others fail."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.pixel_game import Catch
from tests.support.slowed import in_a_run

MEAL = 4 << 30
"""Bytes."""


class Failing(Catch):
    """Works for fifty steps of a run, then fails in its way."""

    def __init__(self, fail: Callable[[], object]) -> None:
        super().__init__()
        self._fail, self._steps = fail, 0

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += in_a_run()
        if self._steps == 50:
            self._fail()
        return super().step(action)


def _raise(said: str) -> None:
    print("what an env prints may come late")
    raise RuntimeError(said)


def raises() -> Failing:
    """`--env tests.crash.failing:raises`."""
    return Failing(partial(_raise, f"the cartridge fell out of {os.getpid()}"))


def repeats() -> Failing:
    """`--env tests.crash.failing:repeats`: the same error in every process."""
    return Failing(partial(_raise, "the cartridge fell out"))


def _eat(mark: Path) -> None:
    """Once in a run, take more memory than the run may have."""
    if not mark.exists():
        mark.touch()
        np.ones(MEAL, np.uint8)


def hungry() -> Failing:
    """`--env tests.crash.failing:hungry`; the environment variable MARK names a file that says that it has eaten."""
    return Failing(partial(_eat, Path(os.environ["MARK"])))


def haunted() -> Catch:
    """`--env tests.crash.failing:haunted`: an actor leaves a process behind, which holds all that its own held.

    The environment variable GHOSTS names a file in which the processes stand.
    """
    if in_a_run():
        if not (ghost := os.fork()):
            signal.pause()
        with open(os.environ["GHOSTS"], "a") as file:
            file.write(f"{ghost}\n")
    return Catch()
