"""Playing an evaluation: whole episodes under the protocol's rules, raw returns, the same for the same seed.

Episode `i` of evaluation `k` draws from (seed, k, i, step) alone: it does not matter which env plays it, nor beside
which others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from actors.env import make_env
from shared.config import FRAME_SIDE, STACK, Play
from shared.protocols import PROTOCOLS
from shared.random import Stream, below, bits, uniform

EPISODE_TICKS = 1 << 20
"""Ticks set aside for one episode; the longest takes 27,000."""


@dataclass(frozen=True)
class Returns:
    """What an evaluation gave: float64[episodes] raw returns and int64[episodes] steps."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]


def play_episodes(
    play: Play,
    seed: int,
    number: int,
    episodes: int,
    stacks: NDArray[np.uint8],
    ask: Callable[[], NDArray[np.uint8]],
) -> Returns:
    """Play `episodes` episodes of evaluation `number`, `len(stacks)` at a time.

    Args:
        stacks: uint8[envs, 4, 84, 84], written here; row j belongs to env j.
        ask: returns the greedy actions uint8[envs] for the stacks as they are.
    """
    epsilon = PROTOCOLS[play.protocol].eval_epsilon
    seed = bits(seed, Stream.EVALUATION, number)
    envs = [make_env(play, seed, 0, training=False) for _ in range(min(len(stacks), episodes))]
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    playing: list[int | None] = list(range(len(envs)))
    frame = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)

    def open_episode(j: int, episode: int) -> None:
        envs[j].reset(episode * EPISODE_TICKS, frame)
        stacks[j] = 0
        stacks[j, -1] = frame

    for j in range(len(envs)):
        open_episode(j, j)
    while any(episode is not None for episode in playing):
        greedy = ask()
        for j, episode in enumerate(playing):
            if episode is None:
                continue
            tick = episode * EPISODE_TICKS + int(lengths[episode]) + 1
            action = int(greedy[j])
            if uniform(seed, Stream.EXPLORE, 0, tick) < epsilon:
                action = below(envs[j].actions, seed, Stream.EXPLORE_ACTION, 0, tick)
            outcome = envs[j].step(tick, action, frame)
            returns[episode] += outcome.raw_reward
            lengths[episode] += 1
            stacks[j, : STACK - 1] = stacks[j, 1:]
            stacks[j, -1] = frame
            if outcome.terminated or outcome.truncated:
                following = episode + len(envs)
                playing[j] = following if following < episodes else None
                if following < episodes:
                    open_episode(j, following)
    return Returns(returns, lengths)
