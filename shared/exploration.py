"""Epsilon-greedy exploration: a function of seed, env and tick, so all machines and repetitions explore alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RunSchedule
from shared.config.sections import Explore
from shared.prng import Stream, randint, uniform, uniforms

WORKER_EPSILONS = ((0.1, 0.4), (0.01, 0.7), (0.5, 1.0))
"""Last epsilons of workers, each with the sum of the chances up to its own (Mnih et al. 2016, section 5.1)."""
AHEAD = 64
"""Ticks whose chances are drawn at once: one by one, each takes longer than a microsecond."""


class Exploration:
    """Exploration of one lane, whose worker may have a last epsilon of its own."""

    def __init__(self, lane: int, run_schedule: RunSchedule, explore: Explore, seed: int) -> None:
        """`lane` is numbered over the whole run."""
        self._first_env, self._seed, self._run_schedule = lane * run_schedule.lane_envs, seed, run_schedule
        indexes = range(self._first_env, self._first_env + run_schedule.lane_envs)
        if explore.epsilon_by_worker:
            drawn = uniform(seed, Stream.WORKER_EPSILON, lane)
            explore = replace(explore, epsilon_end=next(end for end, until in WORKER_EPSILONS if drawn < until))
        self._explore = explore
        self._ladder = [run_schedule.ladder(env, explore) for env in indexes]
        self._first_tick = -AHEAD
        self._chances: list[list[float]] = []

    def choose(self, tick: int, best: NDArray[np.integer], actions: Sequence[int]) -> list[int]:
        """Actions of all envs at a tick.

        Args:
            best: the best actions.
            actions: numbers of possible actions.
        """
        epsilon = self._run_schedule.epsilon(tick, self._explore)
        chosen: list[int] = best.tolist()
        for j, (chance, exponent) in enumerate(zip(self._chances_at(tick), self._ladder, strict=True)):
            if chance < epsilon**exponent:
                index = self._first_env + j
                chosen[j] = randint(actions[j], self._seed, Stream.EXPLORE_ACTION, index, tick)
        return chosen

    def _chances_at(self, tick: int) -> list[float]:
        """A uniform number for each env at a tick."""
        if not 0 <= tick - self._first_tick < AHEAD:
            self._first_tick = tick
            ticks = np.arange(tick, tick + AHEAD)
            indexes = range(self._first_env, self._first_env + len(self._ladder))
            drawn = [uniforms(ticks, self._seed, Stream.EXPLORE, index) for index in indexes]
            self._chances = np.stack(drawn, axis=1).tolist()
        return self._chances[tick - self._first_tick]
