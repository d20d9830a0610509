"""Queueing at the mailbox: a closed network of inference batches that are played and answered in turn.

Each batch of lanes is played by its actors, waits until all its lanes have asked, is answered, and is played again. So
the number of batches is constant, and there are two stations: the actors of the batch, which play their lanes of other
batches in between, and the inference server, which answers one batch at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

ITERATIONS = 100
"""Steps of the fixed point; each reduces its error."""


@dataclass(frozen=True)
class Mailbox:
    """The closed network. Times are in seconds."""

    batches: int
    """Inference batches of one tick of all lanes."""
    per_actor: float
    """Batches that one actor plays; at least 1."""
    playing: float
    """An actor plays its part of the tick of a batch."""
    slowest: float
    """The same of the slowest of a batch's actors, for which the batch waits."""
    answering: float
    """Inference answers a batch."""
    delay: float
    """A batch waits for wake-ups, with both stations free for others."""
    spread: float
    """Coefficient of variation of `playing`."""

    def batches_per_second(self) -> float:
        """Batches answered per second, between the cases without randomness and with exponential times.

        The squared coefficient of variation decides the place between the two, as in the Pollaczek-Khinchine formula.
        """
        weight = min(1.0, self.spread**2)
        return 1 / ((1 - weight) / self._in_step() + weight / self._exponential())

    def _in_step(self) -> float:
        """Without randomness batches fall into step, and wait only where a station is always busy."""
        alone = self.slowest + self.answering + self.delay
        return min(1 / self.answering, self.batches / (self.per_actor * self.playing), self.batches / alone)

    def _exponential(self) -> float:
        """With exponential times, by mean value analysis (Bard 1979, Schweitzer 1979).

        A batch that arrives at a station finds there what it would find on average, less its own part.
        """
        played, answered = self.slowest, self.answering
        for _ in range(ITERATIONS):
            cycle = played + answered + self.delay
            played = self.slowest * (1 + (self.per_actor - 1) * played / cycle)
            answered = self.answering * (1 + (self.batches - 1) * answered / cycle)
        return self.batches / (played + answered + self.delay)


def greatest_of(number: float, spread: float) -> float:
    """Expected greatest of `number` normal variables of mean 1 and this spread, as Blom 1958 approximates it."""
    number = max(1.0, number)
    return 1 + spread * NormalDist().inv_cdf((number - 0.375) / (number + 0.25))


def speedup(threads: int, parallel_share: float) -> float:
    """Speed of a pass on so many threads, divided by its speed on one (Amdahl 1967)."""
    return 1 / (1 - parallel_share + parallel_share / threads)
