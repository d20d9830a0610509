"""Episodes that are looked at: the same as those of an evaluation, and every screen of them."""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType

import numpy as np
import pytest
from numpy.typing import NDArray

import ringside
from actors.envs.atari import AtariEnv
from actors.envs.gymnasium_env import GymnasiumEnv
from ringside.agents.player import Player, StepFrames, make_player, rules_for_person, show, stop_requests
from ringside.agents.scene import Canvas, Scene
from ringside.agents.stored_weights import weights_at
from shared.config.protocols import PROTOCOLS
from shared.config.settings import Config
from shared.process.signals import Requests
from tests.support.checkpoints import random_weights

CATCH = "tests.support.pixel_game:factory"


def player_at(weights: Path, env: str | None = None, seed: int = 3) -> Player:
    return make_player(weights_at(weights, env), None, seed, "cpu")[0]


class Gallery(Canvas):
    """Keeps what it is shown, and is closed after so many screens."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.shown: list[tuple[NDArray[np.uint8], Scene]] = []
        self.most = most

    @property
    def closed(self) -> bool:
        return len(self.shown) >= self.most

    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        self.shown.append((screen, scene))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@pytest.mark.parametrize("protocol", ["nature", "machado"])
def test_filming_changes_no_episode(protocol: str) -> None:
    plain, filmed = (AtariEnv("breakout", PROTOCOLS[protocol], 5, 0, training=False) for _ in range(2))
    shots = filmed.film()
    frames = np.zeros((2, 84, 84), np.uint8)
    actions = np.random.default_rng(0)
    reset, ends, played = True, 0, 0
    for tick in range(1_500):
        if reset:
            plain.reset(tick, frames[0])
            filmed.reset(tick, frames[1])
            reset = False
        else:
            action = int(actions.integers(plain.actions))
            shots.clear()
            outcome = plain.step(tick, action, frames[0])
            assert filmed.step(tick, action, frames[1]) == outcome
            assert sum(shot.reward for shot in shots) == outcome.raw_reward
            assert all(shot.screen.shape == (210, 160, 3) for shot in shots)
            reset = outcome.terminated
            assert len(shots) == 4 or (reset and 1 <= len(shots) <= 4)
            ends += reset
            played += len(shots)
        assert np.array_equal(frames[0], frames[1])
    assert ends >= 2
    assert played > 4_000
    colors = {tuple(color) for color in shots[-1].screen.reshape(-1, 3).tolist()}
    assert {(200, 72, 72), (66, 72, 200)} <= colors, "the red and the blue row of bricks"


def test_an_episode_returns_what_eval_says(tmp_path: Path) -> None:
    weights = random_weights(tmp_path)
    expected = ringside.evaluate(weights, episodes=2, seed=3, device="cpu")
    player = player_at(weights)
    assert player.screens_per_second == 60
    for _ in player.perform([1]):
        pass
    for _ in player.perform([0]):
        pass
    assert [(played.episode, played.total) for played in player.played] == [
        (1, expected["returns"][1]),
        (0, expected["returns"][0]),
    ]
    assert sum(played.steps for played in player.played) == expected["steps"]


@pytest.mark.parametrize(("method", "name"), [("dqn", "Q-value"), ("a2c", "probability")])
def test_values_beside_the_screen_have_the_name_of_what_the_network_answers(
    method: str, name: str, tmp_path: Path
) -> None:
    player = player_at(random_weights(tmp_path, CATCH, actions=3, method=method), CATCH)
    with player:
        step = next(iter(player.perform([0])))[0]
    assert step is not None
    assert {scene.value_name for _, scene in step.moments} == {name}
    sums = {round(sum(scene.values), 5) for _, scene in step.moments if scene.values}
    assert (sums == {1.0}) == (name == "probability")


def test_a_policy_plays_sampled_actions_as_eval_does(tmp_path: Path) -> None:
    weights = random_weights(tmp_path, CATCH, actions=3, method="a2c")
    expected, greedy = (
        ringside.evaluate(weights, env=CATCH, episodes=9, seed=3, device="cpu", eval_actions=actions)
        for actions in ("auto", "greedy")
    )
    assert (expected["eval_actions"], expected["eval_epsilon"], greedy["eval_actions"]) == ("sample", 0.0, "greedy")
    assert expected["returns"] != greedy["returns"]
    assert ringside.evaluate(weights, env=CATCH, episodes=2, seed=3, device="cpu")["returns"] == expected["returns"][:2]
    player = player_at(weights, CATCH)
    played: list[Scene] = []
    with player:
        for turns in player.perform(range(9)):
            played += [scene for step in turns if step is not None for _, scene in step.moments]
    assert [result.total for result in sorted(player.played, key=lambda each: each.episode)] == expected["returns"]
    assert not any(scene.random for scene in played)
    assert any(scene.values and scene.action != int(np.argmax(scene.values)) for scene in played)


def test_many_episodes_at_once_are_those_of_eval(tmp_path: Path) -> None:
    weights = random_weights(tmp_path, CATCH, actions=3)
    expected = ringside.evaluate(weights, env=CATCH, episodes=19, seed=3, device="cpu")["returns"]
    assert len(set(expected)) > 3
    assert ringside.evaluate(weights, env=CATCH, episodes=3, seed=3, device="cpu")["returns"] == expected[:3]
    player = player_at(weights, CATCH)
    for turns in player.perform(range(19)):
        assert len(turns) == 19
    assert [played.total for played in sorted(player.played, key=lambda each: each.episode)] == expected
    player.played.clear()
    for _ in player.perform(range(8, 16)):
        pass
    assert [played.total for played in player.played] == expected[8:16]


def test_the_results_of_an_episode(tmp_path: Path) -> None:
    player = player_at(random_weights(tmp_path, CATCH, actions=3), CATCH)
    turns = [turn for (turn,) in player.perform([4]) if isinstance(turn, StepFrames)]
    moments = [moment for turn in turns for moment in turn.moments]
    assert len(moments) == 12
    total = 0.0
    for step, (screen, scene) in enumerate(moments, start=1):
        assert (screen.shape, screen.dtype) == ((84, 84, 3), np.uint8)
        assert (scene.episode, scene.steps, scene.actions) == (4, step, ("0", "1", "2"))
        assert scene.values is not None
        assert len(scene.values) == 3
        assert scene.random or scene.action == np.argmax(scene.values)
        total = scene.total
        assert scene.over == (step == 12)
    assert total == player.played[0].total
    assert [turn.over for turn in turns] == [False] * 11 + [True]


def test_a_person_plays_what_they_choose() -> None:
    asked: list[int] = []

    def person() -> int:
        asked.append(len(asked) % 3)
        return asked[-1]

    play = Config().with_settings(env=CATCH).play
    player = Player(play, None, seed=1, person=person, rules=rules_for_person(play))
    gallery = Gallery()
    show(player, range(20), gallery, None, Requests())
    assert [scene.action for _, scene in gallery.shown] == asked
    assert len(asked) == 240
    assert len(player.played) == 20
    assert not any(scene.random or scene.values for _, scene in gallery.shown)


def test_a_show_ends_when_it_is_closed_or_its_time_is_over(tmp_path: Path) -> None:
    player = player_at(random_weights(tmp_path, CATCH, actions=3), CATCH)
    gallery = Gallery(most=17)
    show(player, range(100), gallery, None, Requests())
    assert len(gallery.shown) == 17
    assert len(player.played) == 1
    gallery = Gallery()
    show(player, range(100), gallery, 2.0, Requests())
    assert len(gallery.shown) == 2 * player.screens_per_second == 30
    assert [scene.episode for _, scene in gallery.shown] == [0] * 12 + [1] * 12 + [2] * 6


def test_a_signal_asks_for_the_end_and_a_later_one_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_requests() as stop:
        assert not stop.count
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # `timeout` sends two
        signal.raise_signal(signal.SIGHUP)
        assert stop.count == 1
        monkeypatch.setattr("shared.process.signals.SECOND_AFTER_SECONDS", -1.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_envs_are_closed_with_the_player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[GymnasiumEnv] = []
    monkeypatch.setattr(GymnasiumEnv, "close", lambda self: closed.append(self))
    with player_at(random_weights(tmp_path, CATCH, actions=3), CATCH) as player:
        next(player.perform(range(3)))
        closed.clear()  # of those that were only asked for their actions
    assert len(set(closed)) == 3
