"""What is told beside the screen of an episode that is watched."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

_PATIENCE = 0.25
"""Seconds behind its time from which on a show goes on from now, rather than catch up."""


@dataclass(frozen=True)
class Scene:
    """One moment of an episode. All returns and rewards are raw."""

    game: str
    episode: int
    steps: int
    """Steps played, the one that is shown included."""
    total: float
    """The return so far."""
    reward: float
    """The last reward that was not nought."""
    actions: tuple[str, ...]
    """The names of all actions."""
    action: int
    """Which of them is played."""
    random: bool
    """Whether chance chose it (epsilon), and nobody else."""
    values: tuple[float, ...] | None
    """Q(s, .) of the state in which it was chosen; None: no network was asked."""
    over: bool = False
    """Whether the episode is at its end."""


class Canvas(ABC):
    """Somewhere that episodes are shown, between `__enter__` and `__exit__`."""

    @property
    def closed(self) -> bool:
        """Whether nobody looks on any more, or nothing more fits."""
        return False

    @abstractmethod
    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        """Show a screen uint8[h, w, 3] in its turn; where people look on, that takes as long as it is to be seen."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what the canvas held: a window, the terminal, a file."""


class ValueRange:
    """Where values lie between the lowest and the highest of their episode so far.

    The values of a state are near each other and far from nought, so that bars from nought would all look alike.
    """

    def __init__(self) -> None:
        self._episode = -1
        self._low = self._high = 0.0

    def fractions(self, episode: int, values: Sequence[float]) -> list[float]:
        """Each value's place, from 0 to 1."""
        if episode != self._episode:
            self._episode, self._low, self._high = episode, min(values), max(values)
        self._low, self._high = min(self._low, *values), max(self._high, *values)
        span = self._high - self._low
        return [(value - self._low) / span if span else 1.0 for value in values]


class Pace:
    """The time at which each of many screens is due."""

    def __init__(self, rate: float, most: float) -> None:
        """Of `rate` screens a second, of which at most `most` can be drawn."""
        self._period, self._between = 1.0 / rate, 1.0 / most
        self._due = self._drawn = -np.inf

    def wait(self) -> bool:
        """Wait for the next screen's time; whether it is to be drawn."""
        now = time.perf_counter()
        if now - self._due > _PATIENCE:
            self._due = now
        due, self._due = self._due, self._due + self._period
        if due > now:
            time.sleep(due - now)
        if now > self._due or due - self._drawn < self._between * 0.99:
            return False
        self._drawn = due
        return True
