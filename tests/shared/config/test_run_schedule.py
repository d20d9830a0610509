"""Rounds, windows and schedules, against the rules of docs/design.md."""

from itertools import accumulate
from typing import Any

import pytest

from shared.config.presets import PRESETS
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.sections import Explore
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
    assert (nature.first_learning_round, nature.rounds) == (6, 5_009), "rounded up"
    assert nature.target_changes_after(0)


BEGINS = [
    ({}, 59_904),
    ({"schedule": "free"}, 59_904),
    ({"schedule": "alternate", "envs": 1, "lane_envs": 1}, 50_004),
    ({"envs": 10, "round_steps": 100, "learning_starts": 400}, 400),
]


@pytest.mark.parametrize(("settings", "begins"), BEGINS)
def test_the_step_at_which_learning_begins(settings: dict[str, Any], begins: int) -> None:
    """Updates of a round are done while it is played, on the rounds before it; with `alternate` after it, on it too."""
    planned = run_schedule(**settings)
    first = planned.first_learning_round
    assert planned.updates_in(first - 1) == 0 < planned.updates_in(first)
    assert planned.learning_begins == begins
    assert planned.window_end(first) * planned.envs == begins, "updates of the first round draw from what was played"


def test_updates_that_run_beside_their_steps_begin_a_round_sooner() -> None:
    settings = {"schedule": "alternate", "device": "cpu", "learner_members": 1}
    assert [run_schedule(**settings, n_step=n).learning_begins for n in (1, 2)] == [50_112, 50_016]


@pytest.mark.parametrize("schedule", ["ordered", "async"])
@pytest.mark.parametrize("snapshot_every_steps", [80, 2_000, 20_000])
def test_the_learning_of_workers_does_not_depend_on_snapshots(schedule: str, snapshot_every_steps: int) -> None:
    """Gradients of 8 workers take 5 ticks each, so 40 steps."""
    replay = {"method": "dqn", "local_replay": 1_000, "learning_starts": 1_000}
    sizes = {"workers": 8, "lane_envs": 1, "t_max": 5, "snapshot_every_steps": snapshot_every_steps}
    sizes |= {"total_steps": 8_000, "anneal_steps": 4_000}
    planned = run_schedule(schedule=schedule, learning_rate_end=0.0, **sizes, **replay)
    assert (planned.round_steps, planned.first_learning_round, planned.learning_begins) == (40, 25, 1_040)
    assert (planned.steps_without_learning, planned.annealed(50, 1.0, 0.0)) == (1_000, 0.5)
    rounds = range(planned.rounds + 1)
    assert [planned.updates_before(round_) for round_ in rounds] == [8 * max(0, round_ - 25) for round_ in rounds]
    assert [planned.updates_in(round_) for round_ in rounds] == [8 * (round_ >= 25) for round_ in rounds]


@pytest.mark.parametrize("settings", [{}, {"envs": 6, "lane_envs": 3, "train_every": 7}])
def test_updates_keep_the_ratio(settings: dict[str, Any]) -> None:
    planned = run_schedule(**{"envs": 10, "round_steps": 100, "learning_starts": 350, "total_steps": 5_000} | settings)
    counts = [planned.updates_in(round_) for round_ in range(planned.rounds)]
    done = [0, *accumulate(counts)]
    assert [planned.updates_before(round_) for round_ in range(planned.rounds)] == done[:-1]
    first = planned.first_learning_round
    assert [count > 0 for count in counts] == [round_ >= first for round_ in range(planned.rounds)]
    steps = (planned.rounds - first) * planned.round_steps
    assert abs(done[-1] - steps / planned.train_every) < 1


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
    assert (alternate.round_steps, alternate.updates_in(alternate.first_learning_round)) == (4, 1)
    changes = [round_ for round_ in range(10_000) if alternate.target_changes_after(round_)]
    assert [(round_ + 1) * 4 for round_ in changes] == [10_000, 20_000, 30_000, 40_000]
    assert alternate.snapshot_rounds == 100


def test_alternate_with_more_envs_plays_a_tick_of_all() -> None:
    alternate = run_schedule(schedule="alternate", envs=16, train_every=4)
    assert (alternate.round_ticks, alternate.updates_in(alternate.first_learning_round)) == (1, 4)


SPANS = [
    ({}, 1),
    ({"round_steps": 145}, 1),  # rounded up to a round of 192 steps
    ({"schedule": "free"}, 1),
    ({"schedule": "alternate"}, 10_000 // 96 // 10 * 10),  # whole records of 10 rounds
    ({"method": "sampled", "round_steps": 1_920}, 20_000 // 1_920),
    ({"method": "sampled", "round_steps": 1_920, "schedule": "alternate"}, 20_000 // 1_920),
    ({"snapshot_every_steps": 60_000}, 6),
    ({"schedule": "free", "snapshot_every_steps": 60_000}, 6),
    ({"snapshot_every_steps": 5}, 1),
]


@pytest.mark.parametrize(("settings", "rounds"), SPANS)
def test_rounds_between_two_snapshots(settings: dict[str, Any], rounds: int) -> None:
    """Whole records within --snapshot-every-steps; by default a round, and more where rounds are short."""
    assert run_schedule(**settings).snapshot_rounds == rounds


SIZES: dict[str, Any] = {"envs": 8, "lane_envs": 2, "round_steps": 80, "replay_size": 80}
WORKERS: dict[str, Any] = {"workers": 4, "t_max": 5}


SCHEDULES = [
    *({"schedule": each} for each in ("concurrent", "alternate", "free")),
    *({"schedule": each, "replay_size": 800} for each in ("concurrent", "alternate", "free")),
    *({"schedule": each, "method": "sampled", "batch_size": 16} for each in ("concurrent", "alternate")),
    *(WORKERS | {"schedule": each, "method": "a2c"} for each in ("ordered", "async")),
    *(WORKERS | {"schedule": each, "method": "dqn", "local_replay": 100} for each in ("ordered", "async")),
]


@pytest.mark.parametrize("rounds_apart", [1, 2, 5])
@pytest.mark.parametrize("settings", SCHEDULES)
def test_ticks_in_use_are_never_written_over(settings: dict[str, Any], rounds_apart: int) -> None:
    """At every committed count: the window of the newest snapshot and its first stacks, and what the scribe records."""
    planned = run_schedule(**SIZES | settings, snapshot_every_steps=80 * rounds_apart)
    n, span = planned.round_ticks, planned.snapshot_rounds
    assert planned.max_rounds_ahead == {"free": 2, "async": planned.record_rounds}.get(settings["schedule"], 1)
    assert (span, n) == (rounds_apart, 10) or settings["schedule"] in ("alternate", "ordered", "async")
    for committed in range(40 * span, 42 * span):
        newest_written = (committed + planned.max_rounds_ahead) * n  # the frame with which the next round opens
        oldest_readable = planned.oldest_readable_tick(committed)
        assert oldest_readable == newest_written + 1 - planned.capacity
        snapshot = committed - committed % span
        assert oldest_readable <= snapshot * n - planned.window_ticks - (STACK - 1)
        # The learner waits for the scribe at a snapshot, with rounds of updates a whole span later.
        if planned.updates_per_round or planned.is_snapshot(committed):
            assert oldest_readable <= (snapshot - span) * n


def test_epsilon_goes_down_after_learning_starts() -> None:
    planned, explore = run_schedule(envs=10, learning_starts=1_000), Explore(epsilon_steps=1_000)
    values = [planned.epsilon(tick, explore) for tick in (0, 100, 150, 200, 10_000)]
    assert values == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.1])


def test_the_ladder_of_epsilons_is_that_of_ape_x() -> None:
    """Horgan et al. 2018, section 4.1: env i of N explores with epsilon^(1 + 7 i / (N - 1))."""
    explore = Explore(epsilon_ladder=7.0)
    powers = [run_schedule(envs=8).ladder(env, explore) for env in range(8)]
    assert [0.4**power for power in powers] == pytest.approx([0.4 ** (1 + i) for i in range(8)])
    assert run_schedule(envs=1, lane_envs=1).ladder(0, explore) == 1.0


def on_policy_schedule(schedule: str, rounds_apart: int, epochs: int = 1) -> RunSchedule:
    """Rounds of 40 steps, 10 ticks of four envs, with minibatches of 16."""
    sizes = {"envs": 4, "lane_envs": 2, "round_steps": 40, "batch_size": 16, "total_steps": 3_990, "epochs": epochs}
    return run_schedule(method="sampled", schedule=schedule, snapshot_every_steps=40 * rounds_apart + 39, **sizes)


@pytest.mark.parametrize("rounds_apart", [1, 5])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_an_on_policy_method_learns_from_the_newest_round_alone(schedule: str, rounds_apart: int) -> None:
    planned, lag = on_policy_schedule(schedule, rounds_apart), int(schedule == "concurrent")
    assert (planned.round_ticks, planned.window_ticks, planned.snapshot_rounds) == (10, 10, rounds_apart)
    assert (planned.rounds, planned.first_learning_round) == (100, lag), "the first round with a round to learn from"
    for round_ in range(lag, planned.rounds):
        assert planned.window_end(round_) - planned.window_ticks == (round_ - lag) * planned.round_ticks
        assert not planned.target_changes_after(round_)
    assert planned.learning_begins == planned.round_steps == planned.window_end(lag) * planned.envs
    assert not planned.has_own_target
    for boundary in range(0, 50, rounds_apart):
        first = min(planned.window_end(boundary) - planned.window_ticks, boundary * planned.round_ticks)
        assert planned.oldest_needed_tick(boundary) == max(0, first - (STACK - 1)), "the round and its first stacks"


@pytest.mark.parametrize(("epochs", "updates"), [(1, 2), (3, 7)])
@pytest.mark.parametrize("schedule", ["concurrent", "alternate"])
def test_every_round_of_an_on_policy_method_has_the_same_updates(schedule: str, epochs: int, updates: int) -> None:
    """floor(epochs * 40 / 16), without a remainder that a later round takes over."""
    planned = on_policy_schedule(schedule, 5, epochs)
    for round_ in range(planned.rounds):
        assert planned.updates_before(round_) == updates * max(0, round_ - planned.first_learning_round)
        assert planned.updates_in(round_) == (updates if round_ >= planned.first_learning_round else 0)


@pytest.mark.parametrize("schedule", ["concurrent", "free", "alternate"])
def test_a_boundary_of_a_replay_method_needs_its_window(schedule: str) -> None:
    planned = run_schedule(schedule=schedule, envs=4, round_steps=40, replay_size=200, snapshot_every_steps=40)
    boundary = 100 * planned.snapshot_rounds
    assert planned.oldest_needed_tick(boundary) == boundary * planned.round_ticks - planned.window_ticks


def test_an_lstm_adds_its_state_to_the_slots_and_a_tick_before_the_first() -> None:
    """Its state lies in the slot before, which a stack of one frame does not need."""
    settings = WORKERS | {"schedule": "ordered", "method": "a2c", "network": "a3c", "frame_stack": 1}
    plain, recurrent = (run_schedule(**settings, recurrent=each) for each in (False, True))
    assert (plain.recurrent_units, recurrent.recurrent_units) == (0, 256)
    assert (plain.history_ticks, recurrent.history_ticks) == (0, 1)
    assert recurrent.capacity == plain.capacity + 1


def test_the_target_network_of_a_version_follows_its_changes() -> None:
    planned = make_run_schedule(PRESETS["nq-async"])
    changes = [0, *accumulate(planned.target_changes_after(boundary) for boundary in range(300))]
    assert [planned.target_changes_before(boundary) for boundary in range(300)] == changes[:-1]
    assert changes[-1] == 300 * 80 // 10_000
