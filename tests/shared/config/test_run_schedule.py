"""Rounds, windows and schedules, against the rules of docs/design.md."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import Config
from shared.frame_shape import STACK
from tests.support import sampled_method


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled_method.register(monkeypatch)


def run_schedule(**settings: Any) -> RunSchedule:
    return make_run_schedule(Config().with_settings(**settings))


def test_nature_on_96_envs() -> None:
    nature = run_schedule()
    assert (nature.lanes, nature.round_ticks, nature.round_steps) == (48, 104, 9_984)
    assert nature.window_ticks == 10_400  # rounded down to whole rounds: at most replay_size steps
    assert nature.first_learning_round == 6  # rounded up
    assert nature.rounds == 5_009  # rounded up
    assert nature.target_changes_after(0)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, 59_904),
        ({"schedule": "free"}, 59_904),
        ({"schedule": "alternate", "envs": 1, "lane_envs": 1}, 50_004),
        ({"envs": 10, "round_steps": 100, "learning_starts": 400}, 400),
    ],
)
def test_the_step_at_which_learning_begins(settings: dict[str, Any], begins: int) -> None:
    """Updates of a round are done while it is played, on the rounds before it; with `alternate` after it, on it too."""
    planned = run_schedule(**settings)
    first = planned.first_learning_round
    assert planned.updates_in(first - 1) == 0 < planned.updates_in(first)
    assert planned.learning_begins == begins
    assert planned.window_end(first) * planned.envs == begins, (
        "the updates of the first round draw from what was played"
    )


@pytest.mark.parametrize("schedule", ["ordered", "async"])
@pytest.mark.parametrize("snapshot_every_steps", [80, 2_000, 20_000])
def test_the_learning_of_workers_does_not_depend_on_snapshots(schedule: str, snapshot_every_steps: int) -> None:
    """Gradients of 8 workers take 5 ticks each, so 40 steps."""
    replay = {"method": "dqn", "local_replay": 1_000, "learning_starts": 1_000}
    sizes = {"workers": 8, "lane_envs": 1, "t_max": 5, "snapshot_every_steps": snapshot_every_steps}
    planned = run_schedule(schedule=schedule, anneal_steps=4_000, learning_rate_end=0.0, **sizes, **replay)
    assert (planned.round_steps, planned.first_learning_round, planned.learning_begins) == (40, 25, 1_040)
    assert planned.steps_without_learning == 1_000
    assert planned.annealed(50, 1.0, 0.0) == 0.5
    done = [planned.updates_before(round_) for round_ in range(planned.rounds + 1)]
    assert done == [8 * max(0, round_ - 25) for round_ in range(planned.rounds + 1)]
    assert [count > 0 for count in map(planned.updates_in, range(planned.rounds))] == [
        round_ >= planned.first_learning_round for round_ in range(planned.rounds)
    ]


@pytest.mark.parametrize("settings", [{}, {"envs": 6, "lane_envs": 3, "train_every": 7}, {"learning_starts": 0}])
def test_updates_keep_the_ratio(settings: dict[str, Any]) -> None:
    planned = run_schedule(
        **({"envs": 10, "round_steps": 100, "learning_starts": 350, "total_steps": 5_000} | settings)
    )
    done = 0
    for round_ in range(planned.rounds):
        assert planned.updates_before(round_) == done
        count = planned.updates_in(round_)
        assert (count > 0) == (round_ >= planned.first_learning_round)
        done += count
    steps = (planned.rounds - planned.first_learning_round) * planned.round_steps
    assert abs(done - steps / planned.train_every) < 1


@pytest.mark.parametrize("settings", [{}, {"schedule": "alternate"}, {"method": "a2c", "batch_size": 10}])
@pytest.mark.parametrize("total_steps", [1_000, 5_000])
def test_an_annealed_value_follows_the_steps_and_not_the_total(settings: dict[str, Any], total_steps: int) -> None:
    sizes = {"envs": 10, "round_steps": 100, "learning_starts": 300, "total_steps": total_steps}
    planned = run_schedule(**sizes, anneal_steps=1_000, learning_rate_end=0.25, **settings)
    for round_ in range(2_000 // planned.round_steps):
        played = round_ * planned.round_steps
        assert planned.annealed(round_, 1.0, 0.25) == pytest.approx(max(0.25, 1.0 - 0.75 * played / 1_000))
        assert planned.annealed(round_, 0.7, None) == 0.7
    assert planned.annealed(10**9, 1.0, 0.0) == 0.0


def test_alternate_is_nature_to_the_letter_with_one_env() -> None:
    alternate = run_schedule(schedule="alternate", envs=1, lane_envs=1, snapshot_every_steps=400)
    assert alternate.round_steps == 4
    assert alternate.updates_in(alternate.first_learning_round) == 1
    changes = [round_ for round_ in range(10_000) if alternate.target_changes_after(round_)]
    assert [(round_ + 1) * 4 for round_ in changes] == [10_000, 20_000, 30_000, 40_000]
    assert alternate.snapshot_rounds == 100


def test_alternate_with_more_envs_plays_a_tick_of_all() -> None:
    alternate = run_schedule(schedule="alternate", envs=16, train_every=4)
    assert (alternate.round_ticks, alternate.round_steps) == (1, 16)
    assert alternate.updates_in(alternate.first_learning_round) == 4


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({}, 1),
        ({"round_steps": 145}, 1),  # rounded up to a round of 192 steps
        ({"schedule": "free"}, 1),
        ({"schedule": "alternate"}, 10_000 // 96 // 10 * 10),  # whole records of 10 rounds
        ({"method": "sampled", "round_steps": 1_920}, 20_000 // 1_920),
        ({"method": "sampled", "round_steps": 1_920, "schedule": "alternate"}, 20_000 // 1_920),
        ({"snapshot_every_steps": 60_000}, 6),
        ({"schedule": "free", "snapshot_every_steps": 60_000}, 6),
        ({"snapshot_every_steps": 5}, 1),
    ],
)
def test_rounds_between_two_snapshots(settings: dict[str, Any], rounds: int) -> None:
    """Whole records within --snapshot-every-steps; by default a round, and more where rounds are short."""
    assert run_schedule(**settings).snapshot_rounds == rounds


@pytest.mark.parametrize("rounds_apart", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["concurrent", "free"])
def test_rounds_that_a_learner_repeats_are_held(schedule: str, rounds_apart: int) -> None:
    """With the shortest window, and at every committed count: no slot in use is written over."""
    planned = run_schedule(
        schedule=schedule, envs=8, round_steps=80, snapshot_every_steps=80 * rounds_apart, replay_size=80
    )
    n = planned.round_ticks
    assert (planned.snapshot_rounds, planned.window_ticks) == (rounds_apart, n)
    for committed in range(4 * rounds_apart, 6 * rounds_apart):
        newest_written = (committed + planned.max_rounds_ahead) * n
        snapshot = committed - committed % rounds_apart
        assert newest_written - (planned.window_end(snapshot) - planned.window_ticks) < planned.capacity
        # What the scribe records next is there when the span is committed; then the learner waits for it.
        if planned.is_snapshot(committed):
            assert planned.oldest_readable_tick(committed) <= (committed - rounds_apart) * n


@pytest.mark.parametrize("schedule", ["concurrent", "alternate", "free"])
def test_writers_never_meet_readers(schedule: str) -> None:
    """No slot that anybody may write lies in the window, its stack history, or what a restart reads again."""
    planned = run_schedule(schedule=schedule, envs=8, round_steps=80, snapshot_every_steps=80, replay_size=800)
    n, spans = planned.round_ticks, planned.snapshot_rounds
    committed = 40 * spans
    ahead = {"concurrent": 1, "free": 2, "alternate": 1}[schedule]
    newest = (committed + ahead) * n  # the opening frame of the round after the last that may be played
    # The learner may have to go back to the newest snapshot; without spans that is the commit itself.
    oldest = (committed - (spans if spans > 1 else 0)) * n - planned.window_ticks - 3
    assert newest - oldest < planned.capacity + (1 if schedule == "alternate" else 0)


def test_epsilon_goes_down_after_learning_starts() -> None:
    config = Config().with_settings(envs=10, learning_starts=1_000, epsilon_steps=1_000)
    planned, explore = make_run_schedule(config), config.explore
    values = [planned.epsilon(tick, explore) for tick in (0, 100, 150, 200, 10_000)]
    assert values == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.1])


def test_the_ladder_of_epsilons_is_that_of_ape_x() -> None:
    """Horgan et al. 2018, section 4.1: env i of N explores with epsilon^(1 + 7 i / (N - 1))."""
    config = Config().with_settings(envs=8, epsilon_ladder=7.0)
    powers = [make_run_schedule(config).ladder(env, config.explore) for env in range(8)]
    assert [0.4**power for power in powers] == pytest.approx([0.4 ** (1 + i) for i in range(8)])
    alone = Config().with_settings(envs=1, lane_envs=1, epsilon_ladder=7.0)
    assert make_run_schedule(alone).ladder(0, alone.explore) == 1.0


@pytest.mark.parametrize("schedule", ["concurrent", "free", "alternate"])
def test_ticks_that_a_boundary_needs_stay_while_lanes_play_on(schedule: str) -> None:
    """The window of the newest snapshot, and before it the frames of its first stacks; the next tick's are written."""
    planned = run_schedule(
        envs=4,
        lane_envs=2,
        round_steps=40,
        replay_size=200,
        total_steps=4_000,
        learning_starts=40,
        schedule=schedule,
        snapshot_every_steps=40,
    )
    committed = 8 * planned.snapshot_rounds
    newest = (
        committed + planned.max_rounds_ahead
    ) * planned.round_ticks  # the frame with which the round after it opens
    assert planned.oldest_readable_tick(committed) == newest + 1 - planned.capacity
    assert planned.oldest_readable_tick(committed) <= committed * planned.round_ticks - planned.window_ticks - (
        STACK - 1
    )
    later = committed + planned.snapshot_rounds
    assert planned.oldest_readable_tick(later) <= committed * planned.round_ticks, (
        "what is to be written down next is still there"
    )


def on_policy_schedule(schedule: str, rounds_apart: int, epochs: int = 1) -> RunSchedule:
    """Rounds of 40 steps, 10 ticks of four envs, with minibatches of 16."""
    config = Config().with_settings(
        method="sampled",
        epochs=epochs,
        envs=4,
        lane_envs=2,
        round_steps=40,
        batch_size=16,
        total_steps=3_990,
        schedule=schedule,
        snapshot_every_steps=40 * rounds_apart + 39,
    )
    return make_run_schedule(config)


@pytest.mark.parametrize("rounds_apart", [1, 5])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_an_on_policy_method_learns_from_the_newest_round_alone(schedule: str, rounds_apart: int) -> None:
    planned = on_policy_schedule(schedule, rounds_apart)
    assert (planned.round_ticks, planned.window_ticks, planned.snapshot_rounds) == (10, 10, rounds_apart)
    assert planned.rounds == 100
    first = planned.first_learning_round
    assert first == (1 if schedule == "concurrent" else 0), "the first round with a round to learn from"
    for round_ in range(first, planned.rounds):
        lag = 1 if schedule == "concurrent" else 0
        assert planned.window_end(round_) - planned.window_ticks == (round_ - lag) * planned.round_ticks
    assert planned.learning_begins == planned.round_steps == planned.window_end(first) * planned.envs
    assert not any(planned.target_changes_after(round_) for round_ in range(planned.rounds))
    assert not planned.has_own_target


@pytest.mark.parametrize(("epochs", "updates"), [(1, 2), (3, 7)])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_every_round_of_an_on_policy_method_has_the_same_updates(schedule: str, epochs: int, updates: int) -> None:
    """floor(epochs * 40 / 16), without a remainder that a later round takes over."""
    planned = on_policy_schedule(schedule, 5, epochs)
    done = 0
    for round_ in range(planned.rounds):
        assert planned.updates_before(round_) == done
        assert planned.updates_in(round_) == (updates if round_ >= planned.first_learning_round else 0)
        done += planned.updates_in(round_)
    assert planned.updates_before(planned.rounds) == done > 0


@pytest.mark.parametrize("rounds_apart", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_rounds_that_an_on_policy_learner_repeats_are_held(schedule: str, rounds_apart: int) -> None:
    """Every committed count, every snapshot that a restart may go back to: no slot in use is written over."""
    planned = on_policy_schedule(schedule, rounds_apart)
    n = planned.round_ticks
    for committed in range(4 * rounds_apart, 6 * rounds_apart):
        newest_written = (committed + planned.max_rounds_ahead) * n
        snapshot = committed - committed % rounds_apart
        first_repeated = planned.window_end(snapshot) - planned.window_ticks
        oldest_read = first_repeated - (STACK - 1)
        assert newest_written - oldest_read < planned.capacity
        # The scribe may be a whole span behind before the learner waits for it.
        assert newest_written - (snapshot - rounds_apart) * n < planned.capacity
        assert planned.oldest_readable_tick(committed) == newest_written + 1 - planned.capacity


@pytest.mark.parametrize("rounds_apart", [1, 5])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_a_boundary_of_an_on_policy_method_needs_the_window_and_its_first_stacks(
    schedule: str, rounds_apart: int
) -> None:
    planned = on_policy_schedule(schedule, rounds_apart)
    assert planned.oldest_needed_tick(0) == 0
    for boundary in range(rounds_apart, 50, rounds_apart):
        following = planned.window_end(boundary) - planned.window_ticks
        needed = min(following, boundary * planned.round_ticks) - (STACK - 1)
        assert planned.oldest_needed_tick(boundary) == max(0, needed)


@pytest.mark.parametrize("schedule", ["concurrent", "free", "alternate"])
def test_a_boundary_of_a_replay_method_needs_its_window(schedule: str) -> None:
    planned = run_schedule(schedule=schedule, envs=4, round_steps=40, replay_size=200, snapshot_every_steps=40)
    boundary = 100 * planned.snapshot_rounds
    assert planned.oldest_needed_tick(boundary) == boundary * planned.round_ticks - planned.window_ticks
