"""Players of episodes that are shown: an agent or a person, with env and screen.

An episode follows the protocol of an evaluation with the same random draws: episode `i` has the return of episode `i`
of `launch.py eval` with the same seed.
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
from ringside.agents.evaluation_policy import ROWS, EvaluationPolicy, make_evaluation_policy
from ringside.agents.scene import Canvas, Scene
from ringside.agents.stored_weights import GivenRules, play_named, play_of, require_actions, rules_of
from shared.config.protocols import PROTOCOLS, EvalRules
from shared.config.sections import Play
from shared.config.settings import Config
from shared.process.signals import Requests, handle_stop_signals

if TYPE_CHECKING:
    from shared.checkpoint.weights_file import StoredWeights

HumanPolicy = Callable[[], int]
"""Returns the action that a person chooses."""


@dataclass(frozen=True)
class StepFrames:
    """Frames of one step of an episode: each screen uint8[h, w, 3], in its own size, and its scene."""

    moments: list[tuple[NDArray[np.uint8], Scene]]
    over: bool
    """True if the step ended the episode."""


@dataclass(frozen=True)
class EpisodeResult:
    """Result of a finished episode."""

    episode: int
    total: float
    """The raw return."""
    steps: int


class Player:
    """Plays episodes of one evaluation, one or several at a time, and yields their frames.

    The end of a `with` block closes its envs.
    """

    def __init__(
        self,
        play: Play,
        network: EvaluationPolicy | None,
        seed: int,
        person: HumanPolicy | None = None,
        *,
        rules: EvalRules,
    ) -> None:
        """A player of `play`.

        Args:
            network: source of the values shown and, without a person, of the action.
            seed: of the evaluation.
            person: who plays, if anyone does.
            rules: of the evaluation.

        Raises:
            ConfigError: the environment cannot be made.
        """
        if network is None and person is None:
            raise ValueError("A player needs a network or a person.")
        self._evaluation = Evaluation(play, rules, seed, 0)
        self.rules = rules
        self.game = play.played
        self._network, self._person = network, person
        self._envs: list[tuple[Env, list[Shot]]] = []
        self._closing = ExitStack()
        self.played: list[EpisodeResult] = []
        """Finished episodes, in order of their ends."""
        first = self._env(0)[0]
        self.actions = first.action_names
        self.screens_per_second = first.screens_per_second

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def _env(self, place: int) -> tuple[Env, list[Shot]]:
        """Env of a slot, and the list of its shots."""
        while len(self._envs) <= place:
            env = self._evaluation.env()
            self._closing.callback(env.close)
            self._envs.append((env, env.film()))
        return self._envs[place]

    def perform(self, numbers: Sequence[int]) -> Iterator[list[StepFrames | None]]:
        """Play episodes of consecutive numbers side by side, to the end of the longest.

        Yields:
            After each step, the frames of each episode; None: it was over before.
        """
        groups = -(-len(numbers) // ROWS)
        stacks = np.zeros((groups, ROWS, *self._evaluation.play.frames.observation), np.uint8)
        slots = [
            _Slot(self._evaluation.open(env, number, stacks[i // ROWS, number % ROWS]), shots, self.game, env)
            for i, number in enumerate(numbers)
            for env, shots in [self._env(i)]
        ]
        states = [] if self._network is None else [self._network.policy.fresh_state() for _ in stacks]
        while not all(slot.episode.over for slot in slots):
            values = None if self._network is None else self._values(self._network, stacks, states)
            frames: list[StepFrames | None] = []
            for i, slot in enumerate(slots):
                if slot.episode.over:
                    frames.append(None)
                    continue
                own = None if values is None else values[i // ROWS][numbers[i] % ROWS]
                frames.append(self._step(slot, own))
                if slot.episode.over:
                    episode = slot.episode
                    self.played.append(EpisodeResult(episode.number, episode.total, episode.steps))
            yield frames

    @staticmethod
    def _values(
        network: EvaluationPolicy, stacks: NDArray[np.uint8], states: list[NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]:
        """Values of each group of rows; the states of a recurrent network are those after it."""
        found = []
        for group, rows in enumerate(stacks):
            found.append(network.policy.values(rows, states[group]))
            states[group] = network.policy.next_state
        return found

    def _step(self, slot: _Slot, values: NDArray[np.float32] | None) -> StepFrames:
        """Play one step of an episode with the action of the person, or the network's for values float32[actions]."""
        network, has_policy, shown = self._network, False, None
        if network is not None and values is not None:
            has_policy = network.has_policy
            shown = tuple(network.shown(values[None])[0].tolist())
        if self._person is not None:
            chosen = self._person()
        else:
            assert network is not None, "a player has a network or a person"
            assert values is not None, "the network has answered"
            chosen = int(network.choose(values[None], np.array([slot.episode.draw]), self.rules)[0])
        return slot.step(chosen, shown, has_policy=has_policy)


class _Slot:
    """A running episode and its scene."""

    def __init__(self, episode: Episode, shots: list[Shot], game: str, env: Env) -> None:
        self.episode = episode
        self._shots = shots
        self._game, self._names = game, env.action_names
        self._reward = 0.0

    def step(self, chosen: int, shown_values: tuple[float, ...] | None, *, has_policy: bool) -> StepFrames:
        """Play one step with the chosen action; the values are those that a viewer sees of the state before."""
        episode = self.episode
        total = episode.total
        self._shots.clear()
        episode.step(chosen)
        assert episode.action is not None
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
                values=shown_values,
                over=over,
                has_policy=has_policy,
            )
            moments.append((shot.screen, scene))
        return StepFrames(moments, episode.over)


def make_player(
    weights: StoredWeights | None,
    game: str | None,
    seed: int,
    device: str,
    person: HumanPolicy | None = None,
    *,
    given: GivenRules | None = None,
) -> tuple[Player, EvaluationPolicy | None]:
    """Make a player for weights, on their own game or another with the same actions.

    A person plays without epsilon, and up to the time limit of a training episode.

    Raises `ConfigError` if the game has other actions.
    """
    from actors.envs.atari import game_name  # which loads the emulator

    name = None if game is None else game_name(game)
    if weights is None:
        play = Config().with_settings(game=name).play
        return Player(play, None, seed, person, rules=rules_for_person(play)), None
    play = play_of(weights)
    if name is not None and name != weights.game:
        play = play_named(weights, game=name)
    require_actions(weights, play)
    rules = rules_of(weights, play, given)
    network = make_evaluation_policy(weights, device)
    return Player(play, network, seed, person, rules=rules if person is None else rules_for_person(play)), network


def rules_for_person(play: Play) -> EvalRules:
    """Rules for a person: no epsilon, and the time limit of a training episode."""
    return EvalRules(epsilon=0.0, max_frames=PROTOCOLS[play.protocol].longest_episode_frames)


@contextmanager
def stop_requests() -> Iterator[Requests]:
    """Within the block, a stop signal only sets a request; the second one raises `KeyboardInterrupt`."""
    requests = Requests()

    def on_signal(number: int) -> None:
        requests.count_signal(number)
        if requests.count > 1:
            raise KeyboardInterrupt

    with handle_stop_signals(on_signal):
        yield requests


def show(player: Player, episodes: Iterable[int], canvas: Canvas, seconds: float | None, stop: Requests) -> None:
    """Show episodes one after the other until the canvas closes, a stop is requested, or `seconds` of play are over."""
    left = None if seconds is None else round(seconds * player.screens_per_second)
    for number in episodes:
        for frames in player.perform([number]):
            for step in filter(None, frames):
                for screen, scene in step.moments:
                    if canvas.closed or stop.count or left == 0:
                        return
                    canvas.show(screen, scene)
                    left = None if left is None else left - 1
