"""Epsilon-greedy exploration: a function of seed, env and tick, so all machines and repetitions explore alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RunSchedule
from shared.config.sections import Explore
from shared.prng import Stream, randint, uniform

WORKER_EPSILONS = ((0.1, 0.4), (0.01, 0.7), (0.5, 1.0))
"""Last epsilons of workers, each with the sum of the chances up to its own (Mnih et al. 2016, section 5.1)."""


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

    def choose(self, tick: int, best: NDArray[np.integer], actions: Sequence[int]) -> list[int]:
        """Actions of all envs at a tick.

        Args:
            best: the best actions.
            actions: numbers of possible actions.
        """
        epsilon = self._run_schedule.epsilon(tick, self._explore)
        chosen = []
        for j, exponent in enumerate(self._ladder):
            index = self._first_env + j
            if uniform(self._seed, Stream.EXPLORE, index, tick) < epsilon**exponent:
                chosen.append(randint(actions[j], self._seed, Stream.EXPLORE_ACTION, index, tick))
            else:
                chosen.append(int(best[j]))
        return chosen
