"""Scenes of an episode that is shown, and the canvas on which they appear."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

_CATCH_UP = 0.25
"""Delay in seconds beyond which a show continues from now instead of catching up."""


@dataclass(frozen=True)
class Scene:
    """One moment of an episode. All returns and rewards are raw."""

    game: str
    episode: int
    steps: int
    """Steps played, including the current one."""
    total: float
    """The return so far."""
    reward: float
    """The last reward other than 0."""
    actions: tuple[str, ...]
    """The names of all actions."""
    action: int
    """Index of the action played."""
    random: bool
    """True if the action is random (epsilon)."""
    values: tuple[float, ...] | None
    """Values of all actions in the state in which it was chosen; None: no network plays."""
    over: bool = False
    """True at the end of the episode."""
    has_policy: bool = False
    """True if the values are the probabilities of a policy; else they are Q-values."""

    @property
    def value_name(self) -> str:
        """Name of one of the values."""
        return "probability" if self.has_policy else "Q-value"


class Canvas(ABC):
    """Output for episodes, between `__enter__` and `__exit__`."""

    @property
    def closed(self) -> bool:
        """True if the viewer has closed it, or it is full."""
        return False

    @abstractmethod
    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        """Show a screen uint8[h, w, 3]; for a viewer, wait until the screen is due."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the window, terminal or file of the canvas."""


class ValueRange:
    """Position of values between the lowest and the highest of their episode so far.

    The Q-values of a state are close to each other and far from 0, so bars that start at 0 would all look alike.
    Probabilities lie between 0 and 1 and are their own positions.
    """

    def __init__(self) -> None:
        self._episode = -1
        self._low = self._high = 0.0

    def fractions(self, scene: Scene) -> list[float]:
        """Position of each value of a scene, from 0 to 1; 0 if it has none."""
        episode, values = scene.episode, scene.values
        if values is None:
            return [0.0] * len(scene.actions)
        if scene.has_policy:
            return list(values)
        if episode != self._episode:
            self._episode, self._low, self._high = episode, min(values), max(values)
        self._low, self._high = min(self._low, *values), max(self._high, *values)
        span = self._high - self._low
        return [(value - self._low) / span if span else 1.0 for value in values]


class Pace:
    """Clock of the times at which screens are due."""

    def __init__(self, rate: float, most: float) -> None:
        """For `rate` screens a second, of which at most `most` are drawn."""
        self._period, self._between = 1.0 / rate, 1.0 / most
        self._due = self._drawn = -np.inf

    def wait(self) -> bool:
        """Wait until the next screen is due. Returns True if it is to be drawn."""
        now = time.perf_counter()
        if now - self._due > _CATCH_UP:
            self._due = now
        due, self._due = self._due, self._due + self._period
        if due > now:
            time.sleep(due - now)
        if now > self._due or due - self._drawn < self._between * 0.99:
            return False
        self._drawn = due
        return True
