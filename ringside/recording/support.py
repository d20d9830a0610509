"""Whether the fixed support of c51 holds the returns that are played."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.settings import Config


def outside_support(ring: Mapping[str, NDArray[np.generic]], first_tick: int, stop_tick: int, config: Config) -> float:
    """Share of the states of a span whose discounted return lies outside --v-min to --v-max, in [0, 1].

    The projection of Bellemare et al. 2017, Algorithm 1, counts what lies outside as the nearer end of the support. A
    return is counted as far as it was played: to its end or to that of the span.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; the ticks are committed.
        first_tick, stop_tick: the span, [first_tick, stop_tick).
        config: its discount, clipping and support.
    """
    slots = np.arange(first_tick, stop_tick) % ring["valid"].shape[1]
    reward = ring["raw_reward"][:, slots].astype(np.float64)
    if config.learn.clip_rewards:
        reward = np.sign(reward)
    valid = ring["valid"][:, slots].astype(bool)
    ends = np.logical_or.reduce([ring[name][:, slots] for name in ("terminated", "truncated", "life_lost")])
    outside = 0
    value = np.zeros_like(reward[:, 0])
    for tick in reversed(range(len(slots))):
        later = np.where(ends[:, tick], 0.0, config.learn.discount * value)
        value = np.where(valid[:, tick], reward[:, tick] + later, 0.0)
        outside += int(np.count_nonzero((value < config.algorithm.v_min) | (config.algorithm.v_max < value)))
    return outside / max(1, int(valid.sum()))
