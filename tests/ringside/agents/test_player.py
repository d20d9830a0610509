"""Episodes that are looked at: the same as those of an evaluation, every screen of them, and videos of them."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest

import ringside
from actors.env import Shot
from actors.envs.atari import AtariEnv
from actors.evaluation import Evaluation
from ringside.agents import player
from ringside.agents.evaluating import EvaluationPolicy
from ringside.agents.player import BAR, CHOSEN, GROUND, PANEL, Moment, Pace, Video, play
from ringside.agents.stored_weights import play_of, rules_of, weights_at
from shared.config.protocols import PROTOCOLS
from shared.errors import ConfigError
from tests.support.checkpoints import random_weights

CATCH = "tests.support.pixel_game:factory"
NAMES = ("NOOP", "FIRE", "RIGHT", "LEFT")
SCREEN = np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8)


def played(load: Path, numbers: Sequence[int], env: str | None = None) -> list[Moment]:
    weights = weights_at(load, env)
    settings = play_of(weights)
    evaluation = Evaluation(settings, rules_of(weights, settings), 3, 0)
    with closing(evaluation.env()) as made:
        return list(play(evaluation, made, EvaluationPolicy(weights, "cpu"), numbers))


def returns(moments: list[Moment]) -> list[float]:
    return [episode.total for episode in dict.fromkeys(moment.episode for moment in moments)]


@pytest.mark.parametrize("protocol", ["nature", "machado"])
def test_filming_changes_no_episode(protocol: str) -> None:
    plain, filmed = (AtariEnv("breakout", PROTOCOLS[protocol], 5, 0, training=False) for _ in range(2))
    shots, ends = list[Shot](), 0
    filmed.film(shots.append)
    frames = np.zeros((2, 84, 84), np.uint8)
    actions, reset = np.random.default_rng(0), True
    for tick in range(1_500):
        if reset:
            plain.reset(tick, frames[0])
            filmed.reset(tick, frames[1])
            reset = False
        else:
            action, before = int(actions.integers(plain.actions)), filmed._ale.getEpisodeFrameNumber()
            shots.clear()
            outcome = plain.step(tick, action, frames[0])
            assert filmed.step(tick, action, frames[1]) == outcome
            assert sum(shot.reward for shot in shots) == outcome.raw_reward
            reset = outcome.terminated
            assert len(shots) == filmed._ale.getEpisodeFrameNumber() - before, "beyond an end nothing is shown"
            ends += reset
        assert np.array_equal(frames[0], frames[1])
    assert ends >= 2
    assert shots[-1].screen.shape == (210, 160, 3)
    colors = {tuple(color) for color in shots[-1].screen.reshape(-1, 3).tolist()}
    assert {(200, 72, 72), (66, 72, 200)} <= colors, "the red and the blue row of bricks"


def test_a_video_of_an_unknown_format_is_refused_before_the_evaluation() -> None:
    with pytest.raises(ConfigError, match=r"pong.avi: the suffix says the format; choose one of .mp4 and .gif"):
        ringside.evaluate("pong", device="cpu", video="pong.avi")


@pytest.mark.parametrize(("method", "samples"), [("dqn", False), ("a2c", True)])
def test_episodes_and_their_actions_are_those_of_eval(method: str, samples: bool, tmp_path: Path) -> None:
    weights = random_weights(tmp_path, CATCH, actions=3, method=method)
    expected, greedy, fewer = (
        ringside.evaluate(weights, env=CATCH, episodes=episodes, seed=3, device="cpu", eval_actions=actions)["returns"]
        for episodes, actions in ((19, "auto"), (19, "greedy"), (3, "auto"))
    )
    moments = played(weights, range(19), CATCH)
    assert (returns(moments), fewer) == (expected, expected[:3])
    assert (expected != greedy) == samples
    assert len(set(expected)) > 3
    assert returns(played(weights, range(8, 16), CATCH)) == expected[8:16]
    assert {shot.screen.shape for moment in moments for shot in moment.shots} == {(84, 84, 3)}
    assert sum(moment.shots[0].reward for moment in moments) == pytest.approx(sum(expected))
    best = sum(moment.chosen == np.argmax(moment.values) for moment in moments)
    assert (best == len(moments)) != samples
    sums = {round(float(moment.values.sum()), 5) for moment in moments}
    assert (sums == {1.0}) == samples


def test_the_pace_is_that_of_the_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(player, "time", SimpleNamespace(perf_counter=lambda: now, sleep=sleep))
    pace = Pace(60)
    for _ in range(61):
        pace()
    assert now == pytest.approx(101.0)
    now += 0.1  # held up: the show is in time again
    for _ in range(8):
        pace()
    assert now == pytest.approx(101.0 + 8 / 60)
    now += 60.0  # held up for long: nothing is made up for
    pace()
    pace()
    assert now == pytest.approx(161.0 + 9 / 60)


def moment(action: int = 2, chosen: int = 2, total: float = 7.0, number: int = 2, **given: Any) -> Moment:
    values = np.array(given.pop("values", (0.1, 0.2, 0.4, 0.3)), np.float32)
    episode: Any = SimpleNamespace(number=number, steps=120, total=total, action=action)
    return Moment(episode, chosen, values, (Shot(given.pop("screen", SCREEN), 0.0),) * 2)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Pictures of the video files of a test, as they are added."""
    added: list[np.ndarray] = []
    file = SimpleNamespace(add=lambda picture: added.append(picture.copy()), finish=lambda: None)
    monkeypatch.setattr(player, "VideoFile", lambda path, rate: file)
    return added


def video(names: tuple[str, ...] = NAMES, scale: int | None = 2, path: Path = Path("a.mp4")) -> Video:
    return Video(path, "pong", SimpleNamespace(action_names=names), 20, scale, has_policy=False)


@pytest.mark.parametrize(("height", "scale", "becomes"), [(210, None, 2), (84, None, 6), (600, None, 1), (210, 3, 3)])
def test_a_screen_keeps_its_pixels(pictures: list[np.ndarray], height: int, scale: int | None, becomes: int) -> None:
    screen = np.random.default_rng(0).integers(0, 256, (height, 161, 3), np.uint8)
    video(scale=scale).add(moment(screen=screen))
    assert len(pictures) == 2
    picture = pictures[-1]
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0
    assert picture.shape[1] >= 161 * becomes + PANEL
    for y in range(becomes):
        for x in range(becomes):
            assert np.array_equal(picture[y : height * becomes : becomes, x : 161 * becomes : becomes], screen)


def test_the_played_action_is_marked_and_the_former_moment_is_gone(pictures: list[np.ndarray]) -> None:
    made, black = video(), np.zeros_like(SCREEN)
    for change in ({}, {"action": 0, "total": 8.0}, {"chosen": 1}, {}):
        made.add(moment(screen=black, **change))
    first, _, other, _, random, _, again, _ = pictures
    assert all((first == color).all(axis=2).sum() > 100 for color in (CHOSEN, BAR))
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, random), "the word random"
    marks = [(picture == CHOSEN).all(axis=2) for picture in (first, random)]
    assert np.array_equal(*marks), "the mark is at what is played"
    assert np.array_equal(first, again)


@pytest.mark.parametrize(("height", "scale", "actions"), [(210, 1, 18), (210, 2, 18), (40, 1, 3), (84, 6, 256)])
def test_everything_fits_beneath_each_other(pictures: list[np.ndarray], height: int, scale: int, actions: int) -> None:
    made = video(tuple(f"A{i}" for i in range(actions)), scale)
    made.add(moment(actions - 1, values=np.linspace(0, 1, actions), screen=np.zeros((height, 160, 3), np.uint8)))
    rows = np.flatnonzero((pictures[0][:, -PANEL:] == CHOSEN).all(axis=2).any(axis=1))
    assert rows.max() < pictures[0].shape[0] - 1
    if height * scale < pictures[0].shape[0]:
        assert (pictures[0][height * scale :, :-PANEL] == GROUND).all()


def test_bars_are_of_the_range_of_their_episode() -> None:
    """The range of an episode would show a small probability as a full bar: those of a policy are as they are."""
    made = object.__new__(Video)
    made._has_policy, made._episode = False, -1
    for number, values, shares in (
        (0, (1, 3), (0, 1)),
        (0, (2, 2), (0.5, 0.5)),
        (0, (5, 1), (1, 0)),
        (1, (2, 1), (1, 0)),
    ):
        assert made._shares(moment(number=number, values=values)).tolist() == pytest.approx(shares)
    made._has_policy = True
    assert made._shares(moment(values=(0.25, 0.75))).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_full_disk_is_told_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    def full(path: Path, _mode: str) -> BinaryIO:
        path.touch()
        return Path("/dev/full").open("wb")

    monkeypatch.setattr("actors.filming.open", full, raising=False)
    made = video(scale=1, path=tmp_path / f"a{suffix}")
    noise = moment(screen=np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    with pytest.raises(ConfigError, match=f"The video .*a{suffix} cannot be written: No space left on device"):
        list(map(made.add, [noise] * 100))
    made.file.finish()
    assert not list(tmp_path.iterdir())
