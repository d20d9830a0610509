"""Evaluation beside training: which versions are judged, and what is left of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from actors.evaluation import Ask, Episode, Evaluation, play_episodes
from shared.config.protocols import PROTOCOLS, EvalRules
from shared.config.sections import Play
from shared.frame_shape import FRAME_SIDE, STACK
from shared.memory.evaluation_queue import evaluations_until
from tests.support.pixel_game import Catch

CATCH = Play(env="tests.support.pixel_game:factory")


@pytest.mark.parametrize("every", [1, 7, 10, 25, 480, 1_000])
@pytest.mark.parametrize("round_steps", [10, 32, 480])
def test_a_version_is_judged_after_each_round_that_reaches_a_multiple(round_steps: int, every: int) -> None:
    due = 0
    for boundary in range(1, 60):
        due += any(step % every == 0 for step in range((boundary - 1) * round_steps + 1, boundary * round_steps + 1))
        assert evaluations_until(boundary, round_steps, every) == due
    assert evaluations_until(0, round_steps, every) == evaluations_until(9, round_steps, 0) == 0


def test_envs_are_made_one_by_one_and_closed_when_they_have_played(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones: list[Catch] = []
    monkeypatch.setattr("tests.support.pixel_game.factory", lambda: open_ones.append(Catch()) or open_ones[-1])
    monkeypatch.setattr(Catch, "close", lambda self: open_ones.remove(self))
    made = list[int]()
    played = play(EvalRules(0.05, 108_000), 5, heartbeat=lambda: made.append(len(open_ones)))
    assert min(lengths(played)) > 0
    assert not open_ones
    assert made == [1, 2, 3], "a heartbeat each"


def idle(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.zeros(len(draws), np.uint8)


def play(
    rules: EvalRules, episodes: int | None = None, game: Play = CATCH, rows: int = 3, ask: Ask = idle, **options: Any
) -> list[Episode]:
    """Play evaluation 0 of seed 1, by default with action 0."""
    stacks = np.zeros((rows, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
    return play_episodes(Evaluation(game, rules, 1, 0), stacks, ask, episodes=episodes, **options)


def totals(played: list[Episode]) -> list[float]:
    return [episode.total for episode in played]


def lengths(played: list[Episode]) -> list[int]:
    return [episode.steps for episode in played]


def test_a_truncated_episode_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Catch.step
    monkeypatch.setattr(Catch, "step", lambda self, action: (*step(self, action)[:3], True, {}))
    assert lengths(play(EvalRules(0.0, 108_000), 4)) == [1] * 4


def test_each_episode_is_told_when_it_ends() -> None:
    told: list[Episode] = []
    played = play(EvalRules(0.5, 108_000), 5, rows=2, on_episode=told.append)
    assert sorted(told, key=lambda episode: episode.number) == played
    assert [(episode.number, episode.over) for episode in played] == [(number, True) for number in range(5)]


def test_each_episode_is_said_to_begin_once_at_its_first_observation() -> None:
    """A recurrent network forgets the episode before; within an episode a stack gains a frame and loses its oldest."""
    stacks, begun = np.zeros((3, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8), np.zeros(3, int)
    former = stacks.copy()

    def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        begun[:] += starts
        for row in np.flatnonzero(starts):
            assert stacks[row, -1].any()
            assert not stacks[row, :-1].any()
        going = ~starts & (former != stacks).any(axis=(1, 2, 3))
        assert np.array_equal(stacks[going, :-1], former[going, 1:])
        former[:] = stacks
        return idle(draws, starts)

    play_episodes(Evaluation(CATCH, EvalRules(0.5, 108_000), 1, 0), stacks, ask, episodes=7)
    assert begun.tolist() == [3, 2, 2]


@pytest.mark.parametrize(("game", "frames"), [(Play(game="pong"), 5), *((CATCH, frames) for frames in (1, 4, 5, 40))])
def test_an_episode_is_cut_after_so_many_frames_of_play(game: Play, frames: int) -> None:
    assert set(lengths(play(EvalRules(0.0, frames), 4, game))) == {-(-frames // 4)}


@pytest.mark.parametrize(("steps", "played", "kept"), [(12, 1, 1), (13, 2, 1), (1, 1, 1), (60, 5, 5), (61, 6, 5)])
def test_so_many_steps_are_the_episodes_one_after_another(steps: int, played: int, kept: int) -> None:
    rules = EvalRules(0.5, 108_000)
    whole = totals(play(rules, 6))
    assert totals(play(rules, 6, drops_last=True)) == whole
    for drops_last, number in ((False, played), (True, kept)):
        found = (totals(play(rules, rows=rows, steps=steps, drops_last=drops_last)) for rows in (1, 3))
        assert list(found) == [whole[:number]] * 2, "falls of 12 steps each"


def test_draws_are_of_seed_evaluation_episode_and_step_alone() -> None:
    """However many episodes are played side by side: so evaluations are exact after kills."""
    rules = EvalRules(0.0, 108_000, "sample")

    def drawn(rows: int, seed: int = 1, number: int = 0) -> set[float]:
        seen: list[float] = []

        def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
            seen.extend(draws[draws > 0].tolist())
            return idle(draws, starts)

        stacks = np.zeros((rows, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
        steps = sum(lengths(play_episodes(Evaluation(CATCH, rules, seed, number), stacks, ask, episodes=5)))
        assert len(seen) == len(set(seen)) == steps, "every step has a draw of its own"
        return set(seen)

    expected = drawn(1)
    assert drawn(2) == drawn(8) == expected
    assert all(0 <= draw < 1 for draw in expected)
    assert not expected & (drawn(2, seed=2) | drawn(2, number=1))


def test_epsilon_is_that_of_the_rules() -> None:
    never, again, often = (totals(play(EvalRules(epsilon, 108_000), 30)) for epsilon in (0.0, 0.0, 1.0))
    assert never == again != often


def test_no_ops_shorten_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest episode of training, in which they count, is none of an evaluation's."""
    monkeypatch.setitem(PROTOCOLS, "nature", replace(PROTOCOLS["nature"], longest_episode_frames=60))
    assert set(lengths(play(EvalRules(0.0, 80), 3, Play(game="pong")))) == {20}


def test_an_evaluation_stays_what_it_is() -> None:
    assert totals(play(EvalRules(0.5, 108_000), 8)) == pytest.approx([-0.6, -0.4, -1.0, -0.8, -0.7, -0.3, -0.3, -0.6])
