"""Playing an evaluation: whole episodes under the protocol's rules, raw returns, the same for the same seed.

Episode `i` of evaluation `k` draws from (seed, k, i, step) alone: it does not matter which env plays it, nor beside
which others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from actors.env import Env, make_env
from shared.config import STACK, Play
from shared.protocols import EvalRules
from shared.random import Stream, below, bits, uniform

EPISODE_TICKS = 1 << 20
"""Ticks set aside for one episode; the longest that can be asked for takes a million."""


@dataclass(frozen=True)
class Returns:
    """What an evaluation gave: float64[episodes] raw returns and int64[episodes] steps."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]


class Evaluation:
    """The rules and the seed of one evaluation, from which its envs and episodes are made."""

    def __init__(self, play: Play, rules: EvalRules, seed: int, number: int) -> None:
        """Of evaluation `number` of a run of that seed."""
        self.play = play
        self.rules = rules
        self.seed = bits(seed, Stream.EVALUATION, number)

    def env(self) -> Env:
        """An env for any of its episodes. Raises `EnvError` as `make_env` does."""
        return make_env(self.play, self.seed, 0, training=False)

    def open(self, env: Env, episode: int, stack: NDArray[np.uint8]) -> Episode:
        """Begin an episode in an env that plays no other; from now on `stack`, uint8[4, 84, 84], is kept up to date."""
        return Episode(env, episode, stack, self.seed, self.rules)


class Episode:
    """One episode that is being played."""

    def __init__(self, env: Env, number: int, stack: NDArray[np.uint8], seed: int, rules: EvalRules) -> None:
        self.number = number
        self.total = 0.0
        """The raw return so far."""
        self.steps = 0
        self.over = False
        self.action: int | None = None
        """What was played last; with the chance of epsilon it is not what was chosen."""
        self._env, self._stack, self._seed, self._rules = env, stack, seed, rules
        stack[:-1] = 0
        env.reset(number * EPISODE_TICKS, stack[-1])

    def step(self, chosen: int) -> None:
        """Play the chosen action or, with the chance of epsilon, any."""
        tick = self.number * EPISODE_TICKS + self.steps + 1
        self.action = chosen
        if uniform(self._seed, Stream.EXPLORE, 0, tick) < self._rules.epsilon:
            self.action = below(self._env.actions, self._seed, Stream.EXPLORE_ACTION, 0, tick)
        self._stack[: STACK - 1] = self._stack[1:]
        outcome = self._env.step(tick, self.action, self._stack[-1])
        self.total += outcome.raw_reward
        self.steps += 1
        self.over = outcome.terminated or outcome.truncated or self.steps >= self._rules.max_steps


def play_episodes(
    play: Play,
    rules: EvalRules,
    seed: int,
    number: int,
    episodes: int,
    stacks: NDArray[np.uint8],
    ask: Callable[[], NDArray[np.uint8]],
) -> Returns:
    """Play `episodes` episodes of evaluation `number`, `len(stacks)` at a time; row j plays j, j + len(stacks), ...

    Args:
        stacks: uint8[envs, 4, 84, 84], written here; row j belongs to env j.
        ask: returns the greedy actions uint8[envs] for the stacks as they are.
    """
    evaluation = Evaluation(play, rules, seed, number)
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(evaluation.env())) for _ in range(min(len(stacks), episodes))]
        return _play(evaluation, envs, episodes, stacks, ask)


def _play(
    evaluation: Evaluation,
    envs: Sequence[Env],
    episodes: int,
    stacks: NDArray[np.uint8],
    ask: Callable[[], NDArray[np.uint8]],
) -> Returns:
    """The same, in envs that are there."""
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    playing: list[Episode | None] = [evaluation.open(env, j, stacks[j]) for j, env in enumerate(envs)]
    while any(playing):
        greedy = ask()
        for j, episode in enumerate(playing):
            if episode is None:
                continue
            episode.step(int(greedy[j]))
            if episode.over:
                returns[episode.number], lengths[episode.number] = episode.total, episode.steps
                following = episode.number + len(envs)
                playing[j] = evaluation.open(envs[j], following, stacks[j]) if following < episodes else None
    return Returns(returns, lengths)
