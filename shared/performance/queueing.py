"""Queueing at the mailbox: a closed network of inference batches that are played and answered in turn.

Each batch of lanes is played by its actors, waits until all its lanes have asked, is answered, and is played again. So
the number of batches is constant, and there are two stations: the actors of the batch, which play their lanes of other
batches in between, and the inference server, which answers one batch at a time.
"""

from __future__ import annotations

from statistics import NormalDist

ITERATIONS = 100
"""Steps of the fixed point; each reduces its error."""


def batches_per_second(
    batches: int, per_actor: float, playing: float, slowest: float, answering: float, delay: float, spread: float
) -> float:
    """Batches answered per second, between the cases without randomness and with exponential times.

    Without randomness batches fall into step, and wait only where a station is always busy. The squared coefficient of
    variation decides the place between the two cases, as in the Pollaczek-Khinchine formula.

    Args:
        batches: inference batches of one tick of all lanes.
        per_actor: batches that one actor plays; at least 1.
        playing: seconds in which an actor plays its part of the tick of a batch.
        slowest: the same of the slowest of a batch's actors, for which the batch waits.
        answering: seconds in which inference answers it.
        delay: seconds of a batch in wake-ups, with both stations free for others.
        spread: coefficient of variation of `playing`.
    """
    in_step = min(1 / answering, batches / (per_actor * playing), batches / (slowest + answering + delay))
    random = _exponential(batches, per_actor, slowest, answering, delay)
    weight = min(1.0, spread**2)
    return 1 / ((1 - weight) / in_step + weight / random)


def _exponential(batches: int, per_actor: float, playing: float, answering: float, delay: float) -> float:
    """Throughput with exponential times, by mean value analysis (Bard 1979, Schweitzer 1979).

    A batch that arrives at a station finds there what it would find on average, less its own part.
    """
    played, answered = playing, answering
    for _ in range(ITERATIONS):
        cycle = played + answered + delay
        played = playing * (1 + (per_actor - 1) * played / cycle)
        answered = answering * (1 + (batches - 1) * answered / cycle)
    return batches / (played + answered + delay)


def greatest_of(number: float, spread: float) -> float:
    """Expected greatest of `number` normal variables of mean 1 and this spread, as Blom 1958 approximates it."""
    number = max(1.0, number)
    return 1 + spread * NormalDist().inv_cdf((number - 0.375) / (number + 0.25))


def speedup(threads: int, parallel_share: float) -> float:
    """Speed of a pass on so many threads, divided by its speed on one (Amdahl 1967)."""
    return 1 / (1 - parallel_share + parallel_share / threads)
