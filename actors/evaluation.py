"""Evaluations: raw returns of whole episodes under the protocol's rules. The same seed gives the same returns.

Random numbers of episode `i` of evaluation `k` are functions of (seed, k, i, step) alone, also those at which a policy
is sampled. So the result does not depend on the env that plays an episode, or on other episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from actors.env import Env
from actors.filming import FilmedEpisode
from actors.make_env import make_env
from shared.config.protocols import EvalRules
from shared.config.sections import FRAME_SKIP, Play
from shared.prng import Stream, bits, randint, uniform

EPISODE_TICKS = 1 << 20
"""Ticks reserved for one episode; the longest that can be asked for takes a million."""

Ask: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.bool_]], NDArray[np.uint8]]
"""Function from draws float64[envs] to the actions uint8[envs] for the stacks as they are. A sampled policy takes row
`j`'s action at draw `j`, which is uniform in [0, 1). The second argument, bool[envs], is True where an episode begins.
"""


OnEpisode: TypeAlias = Callable[["Episode"], None]
"""Called with each episode when it has ended, in the order of their ends."""


class Evaluation:
    """The rules and the seed of one evaluation, from which its envs and episodes are made."""

    def __init__(self, play: Play, rules: EvalRules, seed: int, number: int) -> None:
        """Evaluation `number` of a run of that seed."""
        self.play, self.rules, self.seed = play, rules, bits(seed, Stream.EVALUATION, number)

    def env(self, *, window: bool = False) -> Env:
        """An env for any of its episodes. Raises `EnvError` as `make_env` does."""
        return make_env(self.play, self.seed, 0, training=False, window=window)


class Episode:
    """One episode during play.

    Attributes:
        total: the raw return so far.
        action: the last action played; with probability epsilon it is not the chosen one.
    """

    def __init__(self, evaluation: Evaluation, env: Env, number: int, stack: NDArray[np.uint8]) -> None:
        """Begin it in an env that plays no other. The episode keeps `stack`, one observation, up to date."""
        self.number, self.total, self.steps, self.over = number, 0.0, 0, False
        self.action: int | None = None
        self._env, self._stack, self._seed, self._rules = env, stack, evaluation.seed, evaluation.rules
        stack[:-1] = 0
        env.reset(number * EPISODE_TICKS, stack[-1])

    @property
    def draw(self) -> float:
        """Uniform number in [0, 1) at which a sampled policy takes the next action."""
        return uniform(self._seed, Stream.POLICY, 0, self._next_tick)

    @property
    def _next_tick(self) -> int:
        return self.number * EPISODE_TICKS + self.steps + 1

    def step(self, chosen: int) -> None:
        """Play the chosen action or, with probability epsilon, a random one."""
        tick = self._next_tick
        self.action = chosen
        if uniform(self._seed, Stream.EXPLORE, 0, tick) < self._rules.epsilon:
            self.action = randint(self._env.actions, self._seed, Stream.EXPLORE_ACTION, 0, tick)
        self._stack[:-1] = self._stack[1:]
        outcome = self._env.step(tick, self.action, self._stack[-1])
        self.total += outcome.raw_reward
        self.steps += 1
        self.over = outcome.terminated or outcome.truncated or FRAME_SKIP * self.steps >= self._rules.max_frames


def play_episodes(
    evaluation: Evaluation,
    stacks: NDArray[np.uint8],
    ask: Ask,
    *,
    episodes: int | None = None,
    steps: int = 0,
    drops_last: bool = False,
    on_episode: OnEpisode = lambda episode: None,
    video: Path | None = None,
    heartbeat: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """Play episodes of an evaluation, `len(stacks)` at a time; row j plays j, j + len(stacks), ...

    The result is that of playing them one after another.

    Args:
        stacks: uint8[envs, *frames.observation], written here; row j belongs to env j.
        ask: returns the actions for the stacks as they are.
        episodes: number of episodes; None: whole ones in their order until they have `steps` steps together.
        drops_last: leave out the last episode if it goes beyond `steps`.
        on_episode: called with each episode that has ended, also with those that do not count in the end.
        video: file for a video of the first episode; None: none.
        heartbeat: called after each env that is made, which may take long.
    """
    envs: list[Env] = []
    started: dict[int, Episode] = {}
    playing: dict[int, Episode] = {}  # by row

    def wanted(number: int) -> bool:
        """True unless the episodes before, as far as they are played, are enough."""
        if episodes is not None:
            return number < episodes
        return sum(episode.steps for other, episode in started.items() if other < number) < steps

    def start(row: int, number: int) -> None:
        if wanted(number):
            playing[row] = started[number] = Episode(evaluation, envs[row], number, stacks[row])

    with ExitStack() as held:
        for _ in range(min(episodes or len(stacks), len(stacks))):
            envs.append(held.enter_context(closing(evaluation.env())))
            heartbeat()
        for row in range(len(envs)):
            start(row, row)
        # Begun once the first episode has: the no-ops of its reset are no step of the film.
        film = None if video is None else held.enter_context(closing(FilmedEpisode(envs[0], video)))
        while playing:
            draws, starts = np.zeros(len(stacks)), np.zeros(len(stacks), bool)
            for row, episode in playing.items():
                draws[row] = episode.draw if evaluation.rules.actions == "sample" else 0.0
                starts[row] = not episode.steps
            chosen = ask(draws, starts)
            for row, episode in playing.items():
                episode.step(int(chosen[row]))
            if film is not None and 0 in playing:
                film.after_step(over=playing[0].over)
            for row, episode in tuple(playing.items()):
                if episode.over:
                    on_episode(episode)
                    start(row, episode.number + len(envs))
            # An episode is abandoned as soon as those before it have enough steps.
            playing = {row: each for row, each in playing.items() if wanted(each.number) and not each.over}
    played = [episode for number, episode in sorted(started.items()) if wanted(number)]
    if drops_last and episodes is None and len(played) > 1 and sum(episode.steps for episode in played) > steps:
        played.pop()
    return played
