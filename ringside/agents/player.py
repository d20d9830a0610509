"""Agents and people who play episodes to be looked at: what joins network, env and screen.

An episode follows the protocol as in an evaluation, from the same draws: episode `i` here returns what episode `i` of
`launch.py eval` returns with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from actors.env import Env
from actors.envs.film import Shot
from actors.evaluation import Episode, Evaluation
from ringside.agents.agent import ROWS, EvaluationPolicy
from ringside.agents.scene import Canvas, Scene
from shared.config.protocols import PROTOCOLS, EvalRules
from shared.config.settings import FRAME_SIDE, STACK, Play
from shared.process.signals import Requests, handle_stop_signals

if TYPE_CHECKING:
    from shared.checkpoint.weights_file import StoredWeights

HumanPolicy = Callable[[], int]
"""Chooses an action, as a person does."""


@dataclass(frozen=True)
class StepFrames:
    """What one step of one episode showed: each screen uint8[h, w, 3], in its own size, and what is told beside it."""

    moments: list[tuple[NDArray[np.uint8], Scene]]
    over: bool
    """Whether the episode ended with it."""


@dataclass(frozen=True)
class EpisodeResult:
    """An episode that was played to its end."""

    episode: int
    total: float
    """The raw return."""
    steps: int


class Player:
    """Plays episodes of one evaluation, one or several at a time, and shows what they look like.

    At the end of a `with` block its envs are closed.
    """

    def __init__(
        self,
        play: Play,
        network: EvaluationPolicy | None,
        seed: int,
        pilot: HumanPolicy | None = None,
        *,
        rules: EvalRules,
    ) -> None:
        """A player of `play`.

        Args:
            network: whose values are shown and, where there is no pilot, whose best action is played.
            seed: of the evaluation.
            pilot: a person.
            rules: of the evaluation.

        Raises:
            ConfigError: the environment cannot be made.
        """
        if network is None and pilot is None:
            raise ValueError("Nobody plays.")
        self._evaluation = Evaluation(play, rules, seed, 0)
        self.rules = rules
        self.game = play.env or play.game
        self._network, self._pilot = network, pilot
        self._envs: list[tuple[Env, list[Shot]]] = []
        self._closing = ExitStack()
        self.played: list[EpisodeResult] = []
        """The episodes that were played to their ends, in that order."""
        first = self._env(0)[0]
        self.actions = first.action_names
        self.screens_per_second = first.screens_per_second

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def _env(self, place: int) -> tuple[Env, list[Shot]]:
        """The env of a place among those that play together, and what it shows."""
        while len(self._envs) <= place:
            env = self._evaluation.env()
            self._closing.callback(env.close)
            self._envs.append((env, env.film()))
        return self._envs[place]

    def perform(self, numbers: Sequence[int]) -> Iterator[list[StepFrames | None]]:
        """Play the episodes of these consecutive numbers side by side, to the end of the longest.

        Yields:
            After each step, what it showed of each of them; None: its episode was over before.
        """
        groups = -(-len(numbers) // ROWS)
        stacks = np.zeros((groups, ROWS, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
        seats = [
            _Slot(self._evaluation.open(env, number, stacks[i // ROWS, number % ROWS]), shots, self.game, env)
            for i, number in enumerate(numbers)
            for env, shots in [self._env(i)]
        ]
        while not all(seat.episode.over for seat in seats):
            values = None if self._network is None else [self._network.policy.q_values(group) for group in stacks]
            turns: list[StepFrames | None] = []
            for i, seat in enumerate(seats):
                if seat.episode.over:
                    turns.append(None)
                    continue
                turns.append(seat.step(None if values is None else values[i // ROWS][numbers[i] % ROWS], self._pilot))
                if seat.episode.over:
                    episode = seat.episode
                    self.played.append(EpisodeResult(episode.number, episode.total, episode.steps))
            yield turns


class _Slot:
    """An episode that is being played, and what is told of it."""

    def __init__(self, episode: Episode, shots: list[Shot], game: str, env: Env) -> None:
        self.episode = episode
        self._shots = shots
        self._game, self._names = game, env.action_names
        self._reward = 0.0

    def step(self, values: NDArray[np.float32] | None, pilot: HumanPolicy | None) -> StepFrames:
        """Play one step, as the pilot or else the values float32[actions] say."""
        from learner.networks.policy import greedy

        episode = self.episode
        if pilot is not None:
            chosen = pilot()
        else:
            assert values is not None
            chosen = int(greedy(values[None])[0])
        total = episode.total
        self._shots.clear()
        episode.step(chosen)
        assert episode.action is not None
        told = None if values is None else tuple(values.tolist())
        moments = []
        for shot in self._shots:
            total += shot.reward
            self._reward = shot.reward or self._reward
            over = episode.over and shot is self._shots[-1]
            scene = Scene(
                game=self._game,
                episode=episode.number,
                steps=episode.steps,
                total=total,
                reward=self._reward,
                actions=self._names,
                action=episode.action,
                random=episode.action != chosen,
                values=told,
                over=over,
            )
            moments.append((shot.screen, scene))
        return StepFrames(moments, episode.over)


def player_of(
    weights: StoredWeights | None,
    game: str | None,
    seed: int,
    device: str,
    pilot: HumanPolicy | None = None,
    *,
    eval_epsilon: float | None = None,
    eval_max_frames: int | None = None,
) -> tuple[Player, EvaluationPolicy | None]:
    """A player with these weights of their own game or of another with the same actions.

    A pilot plays without epsilon, and as long as an episode of training may last.

    Raises `ConfigError` with a sentence when that cannot be.
    """
    from actors.envs.atari import game_name
    from ringside.agents.agent import play_of, policy_of, require_actions, rules_of
    from shared.config.settings import Config

    name = None if game is None else game_name(game)
    if weights is None:
        play = Config().with_settings(game=name).play
        return Player(play, None, seed, pilot, rules=pilot_rules(play)), None
    play = play_of(weights)
    if name is not None and name != weights.game:
        play = Config().with_settings(game=name, protocol=weights.protocol).play
    require_actions(weights, play)
    rules = rules_of(weights, play, eval_epsilon=eval_epsilon, eval_max_frames=eval_max_frames)
    network = policy_of(weights, device)
    return Player(play, network, seed, pilot, rules=rules if pilot is None else pilot_rules(play)), network


def pilot_rules(play: Play) -> EvalRules:
    """A person plays what they choose, as long as an episode of training may last."""
    return EvalRules(epsilon=0.0, max_frames=PROTOCOLS[play.protocol].longest_episode_frames)


@contextmanager
def stop_heard() -> Iterator[Requests]:
    """Within, a signal only asks for the end; nothing is broken off in its midst, unless the user asks twice."""
    requests = Requests()

    def hear(number: int) -> None:
        requests.count_signal(number)
        if requests.count > 1:
            raise KeyboardInterrupt

    with handle_stop_signals(hear):
        yield requests


def show(player: Player, episodes: Iterable[int], canvas: Canvas, seconds: float | None, stop: Requests) -> None:
    """Show episodes in turn, until the canvas is closed, a stop is asked for or the seconds of play are over."""
    left = None if seconds is None else round(seconds * player.screens_per_second)
    for number in episodes:
        for turns in player.perform([number]):
            for turn in filter(None, turns):
                for screen, scene in turn.moments:
                    if canvas.closed or stop.count or left == 0:
                        return
                    canvas.show(screen, scene)
                    left = None if left is None else left - 1
