"""From words in shared memory to a status."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside.records import summary
from ringside.records.bottleneck import NEWEST, Sample
from ringside.records.metrics import EvaluationStatus
from ringside.records.scribe import record_values
from ringside.watch.observer import OUTSIDE, Observer
from ringside.watch.status import line, number
from shared.config.presets import PRESETS, nearest_preset
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.memory.board import METRIC_RECORDS, RECORD_METRICS, Phase
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from tests.ringside.records.test_record_values import CONFIG
from tests.ringside.watch.conftest import Clock, rendered

Make = Callable[..., Memory]


@pytest.fixture
def make(clock: Clock, request: pytest.FixtureRequest) -> Make:
    """A maker of the memory of a run."""

    def made(config: Config = CONFIG) -> Memory:
        memory = Memory.create(Plan(config, actions=6))
        request.addfinalizer(memory.arena.close)
        return memory

    return made


@pytest.fixture
def memory(make: Make) -> Memory:
    return make()


def test_a_run_that_has_not_begun(memory: Memory) -> None:
    found = Observer(memory).observe()
    assert (found.steps, found.committed, found.total_steps, found.rounds) == (0, 0, 400, 10)
    assert found.mean_return_100 is found.steps_per_second is found.evaluation is None
    assert (set(found.metrics.values()), found.bottleneck.kind, found.can_be_saved) == ({None}, "starting", False)
    names = ("inference", "learner", "scribe", "actor 0", "actor 1")
    assert [(role.name, role.state) for role in found.roles] == [(name, "starting") for name in names]
    assert line(found) == "Starting: waits for inference and 4 more processes."


def test_before_an_episode_ends_the_returns_so_far_are_shown(memory: Memory) -> None:
    board, watcher = memory.board, Observer(memory)
    assert watcher.observe().running_return is None
    board.prepared[0] = 1
    memory.board.phase[:] = Phase.WORKING
    memory.ring.field["episode_return"][0, 4] = 3.0, 5.0
    board.lane_done.publish_all([5, 0])  # the other lane has played nothing
    found = watcher.observe()
    assert (found.running_return, "4.0 so far" in rendered(found)) == (4.0, True)
    assert "return 4.0 so far, no end yet  learning" in line(found)
    board.episodes[0], board.mean_return_100[0] = 1, 2.0
    found = watcher.observe()
    assert (found.running_return, "return 2.0 (mean of the last 1)" in line(found)) == (None, True)


def test_the_title_names_the_nearest_preset(make: Make) -> None:
    changes = ("--round-steps 40", "--replay-size 100", "--learning-starts 80", "--network small")
    rainbow = PRESETS["rainbow"].with_settings(game="pong", envs=4, lane_envs=2, actors=2, run_dir="x", total_steps=400)
    assert nearest_preset(rainbow) == ("rainbow", [])
    found = Observer(make()).observe()
    assert (found.preset, found.changes) == ("nature", changes)


def test_the_time_is_that_of_the_records(memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Display, page and the line at the end count it from the beginning of the run, and over its starts."""
    watcher = Observer(memory)
    clock.now += 30
    assert watcher.observe().elapsed is None
    monkeypatch.setattr(summary.time, "monotonic_ns", lambda: int(clock.now * 1e9))
    memory.board.begun_ns[0], memory.board.before[0] = int(clock.now * 1e9), 600
    clock.now += 7
    assert watcher.observe().elapsed == 607


def test_a_screen_of_a_run_that_is_over_offers_no_end(memory: Memory) -> None:
    assert "Ctrl-C" in rendered(Observer(memory).observe())
    memory.board.phase[:] = Phase.DONE
    assert "Ctrl-C" not in rendered(Observer(memory).observe())


def test_no_number_is_a_negative_zero() -> None:
    assert [number(value) for value in (-0.04, -0.06, 0.0, -1234.56, None)] == ["0.0", "-0.1", "0.0", "-1,234.6", "–"]


def test_speeds_shares_and_figures(memory: Memory, clock: Clock) -> None:
    board, watcher = memory.board, Observer(memory)
    board.prepared[0] = 1
    board.heartbeat[:] = 1_000_000_000_000
    watcher.observe()
    clock.now += 5.0
    board.lane_done.publish_all([5, 0])  # of 4 envs in 2 lanes: 10 steps
    board.heartbeat[:] = 1_005_000_000_000
    assert watcher.observe().steps_per_second is None
    clock.now += 2.0
    board.lane_done.publish_all([35, 25])
    board.commits.publish(3)
    board.updates[0] = 10
    board.metrics[2] = 0.25, 1.5, 3.0, 0.5, 10.0, 1.0, 3.0
    board.busy_ns[Role.LEARNER], board.waited_ns[Role.LEARNER] = 500_000_000, 1_500_000_000
    board.cpu_ns[Role.LEARNER], board.heartbeat[Role.LEARNER] = 2_000_000_000, 1_007_000_000_000
    board.phase[Role.LEARNER], board.phase[Role.INFERENCE] = Phase.WAITING, Phase.WORKING
    board.restarts[Role.ACTOR + 1] = 2
    board.mean_return_100[0], board.best_return[0], board.episodes[0] = -20.5, -19.0, 7
    board.evaluation[:] = 80, 3, 3.0, 5.0
    board.trouble[0] = 28
    found = watcher.observe()
    assert (found.steps, found.committed, found.can_be_saved) == (120, 3, True)
    assert (found.steps_per_second, found.updates_per_second) == (55.0, 5.0)
    assert found.time_left == pytest.approx(280 / 55)
    assert (found.evaluation, found.metrics) == (EvaluationStatus(80, 3, 3.0, 5.0), {"loss": 0.25, "mean_q": 1.5})
    assert (found.mean_return_100, found.best_return, found.episodes) == (-20.5, -19.0, 7)
    inference, learner, *_, actor = found.roles
    assert (inference.state, inference.busy) == ("working", 1.0)  # two seconds of work, not counted yet
    assert (learner.name, learner.state, learner.busy, learner.cores) == ("learner", "waiting", 0.25, 1.0)
    assert actor.restarts == 2
    warning = "runs/pong cannot be written (No space left on device): make space on its disk. The run continues{}, and "
    warning += "writing is tried again."
    assert found.warnings == (warning.format(""),)
    memory.evaluations.queued.publish(1 + len(memory.evaluations.data))
    memory.evaluations.logged.publish(1)
    waits = " until its next evaluation, which waits for former ones"
    assert Observer(memory).observe().warnings == (warning.format(waits),)


DEAD = {"mean_q": -2.42, "q_spread": 0.0002}
SAME, FIXED = "Q is still the same number for all screens", "the entropy of the policy fell below 1%"


def told(memory: Memory, ticks: int = 10, updates: int = 20_000, **metrics: float) -> Memory:
    """The memory, with the metrics of a method, which may have action values and a policy."""
    board, names = memory.board, dict.fromkeys([*memory.plan.method.metrics, "mean_q", "q_spread"])
    board.metric_names = (*names, *RECORD_METRICS)
    board.metrics = np.full((METRIC_RECORDS, len(board.metric_names)), np.nan)
    for name, value in metrics.items():
        board.metrics[:, board.metric_names.index(name)] = value
    board.lane_done.publish_all(ticks)
    board.updates[0] = updates
    return memory


DYING = [
    ({}, DEAD, SAME),
    ({}, {"mean_q": 4.0, "q_spread": 0.0}, SAME),
    ({}, DEAD | {"updates": 19_999}, None),  # it may yet come to life
    ({}, {"mean_q": -1.8, "q_spread": 0.06}, None),
    ({}, {"mean_q": 0.001, "q_spread": 0.0002}, None),  # there was no reward so far
    ({}, {"mean_q": 0.0, "q_spread": 0.0}, None),
    ({}, {}, None),
    ({"batch_size": 4}, DEAD, None),  # few screens may be alike
    ({"method": "a2c"}, DEAD | {"entropy": 1.2}, None),  # a policy is judged by its entropy, of at most ln 6
    ({"method": "a2c"}, {"entropy": 0.017}, FIXED),
    ({"method": "a2c"}, {"entropy": 0.0}, "a larger --entropy-weight, a smaller --learning-rate"),
    ({"method": "a2c"}, {"entropy": 0.018}, None),
    ({"method": "a2c"}, {"entropy": 0.017, "ticks": 100}, None),  # it may have learned what to do
    ({"method": "a2c"}, {}, None),
]


@pytest.mark.parametrize(("settings", "metrics", "warned"), DYING)
def test_learning_that_has_probably_died_is_warned_of(
    make: Make, settings: dict[str, Any], metrics: dict[str, Any], warned: str | None
) -> None:
    policy = {"total_steps": 4_000, "batch_size": 20} if "method" in settings else {}
    warnings = Observer(told(make(CONFIG.with_settings(**policy | settings)), **metrics)).observe().warnings
    assert [warned is not None and warned in warning for warning in warnings] == [True] * (warned is not None)


def test_a_warning_of_a_fixed_policy_lasts_until_it_explores(make: Make) -> None:
    memory = make(CONFIG.with_settings(method="a2c", batch_size=20, total_steps=4_000))
    watcher, found = Observer(memory), []
    for ticks, entropy in ((10, 0.01), (500, 0.01), (500, 1.2), (500, 0.01)):
        told(memory, ticks, entropy=entropy)
        found.append(len(watcher.observe().warnings))
    assert found == [1, 1, 0, 0]


def test_a_support_that_returns_leave_is_warned_of(make: Make) -> None:
    for clip_rewards, instead in ((True, ""), (False, ", or --clip-rewards,")):
        memory = make(CONFIG.with_settings(method="c51", clip_rewards=clip_rewards))
        found = []
        for share in (np.nan, OUTSIDE / 2, 0.25):  # it is not known before the first record
            memory.board.outside_support[0] = share
            found.append(Observer(memory).observe().warnings)
        warning = "Returns leave the support (outside_support in metrics.jsonl): what lies beyond --v-min -10 or "
        warning += "--v-max 10 counts as its end, so actions that lead there look alike. "
        assert found == [(), (), (f"{warning}A wider support{instead} would tell them apart.",)]


SPEEDS = [
    ([*((1.0, 0, False) for _ in range(9)), (0.0, 20, False), *((1.0, 20, True) for _ in range(10))], 0.0),
    ([(1.0, 20, False), (0.0, 20, True), *((1.0, 20 + 5 * i, True) for i in range(1, 6))], 20.0),  # it resumes there
    ([(0.0, 10, True), (2.0, 11, True), (2.0, 5, True)], 0.0),  # a lane is played again
    ([(0.0, 10, True), (2.0, 5, True), *((1.0, 5 + i, True) for i in range(1, 101))], 4.0),  # old samples are gone
]


@pytest.mark.parametrize(("played", "speed"), SPEEDS)
def test_the_speed_is_that_of_playing(memory: Memory, clock: Clock, played: list[Any], speed: float) -> None:
    """Seconds, ticks that all lanes have played, and if the memory is prepared."""
    watcher, found = Observer(memory), None
    for seconds, ticks, prepared in played:
        clock.now += seconds
        memory.board.lane_done.publish_all(ticks)
        memory.board.prepared[0] = prepared
        found = watcher.observe().steps_per_second
        assert prepared or not found
    assert (found or 0.0) == pytest.approx(speed)


def test_a_late_observer_knows_the_speed_since_the_newest_record(memory: Memory) -> None:
    memory.board.prepared[0] = 1
    memory.board.lane_done.publish_all(10)
    memory.board.samples[NEWEST] = Sample.take(memory, 995_000_000_000).words
    memory.board.lane_done.publish_all(30)
    assert Observer(memory).observe().steps_per_second == 80 / 5


def test_until_a_whole_round_with_learning_the_time_left_is_the_least(memory: Memory, clock: Clock) -> None:
    """Learning begins with the third round, at step 80 of 400."""
    board, watcher = memory.board, Observer(memory)
    board.prepared[0] = 1
    seen = []
    for second in range(1, 8):
        clock.now += 1.0
        board.lane_done.publish_all(10 * min(second, 3) + max(0, second - 3))  # from the third round on a tenth as fast
        board.commits.publish(int(board.lane_done.values.min() // 10))
        board.updates[0] = make_run_schedule(CONFIG).updates_before(board.committed) + (second >= 3)
        found = watcher.observe()
        seen.append((found.committed, found.time_left_at_least, found.steps_per_second))
    assert [at_least for _, at_least, _ in seen] == [True] * 2 + [False] * 5
    assert seen[-1][2] == pytest.approx(4.0), "what was played before learning does not count"
    assert found.learning_begins == 80


def test_a_run_that_never_learns_has_one_pace(make: Make) -> None:
    found = Observer(make(CONFIG.with_settings(learning_starts=400))).observe()
    assert (found.time_left_at_least, found.learning_begins) == (False, None)


def test_a_resumed_run_can_be_saved_from_its_start_and_shows_no_figures_before_they_are_known(make: Make) -> None:
    for resume in (None, Path("there")):
        memory = make(CONFIG.with_settings(resume=resume))
        found = Observer(memory).observe()
        assert (found.can_be_saved, "of 400 steps" in rendered(found)) == (resume is not None, False)
    memory.board.phase[:] = Phase.WORKING
    assert "of 400 steps" in rendered(Observer(memory).observe())


def test_displays_have_an_epsilon_where_there_is_one_for_all(make: Make) -> None:
    """A policy is sampled, and each worker may have its own."""
    sampled, drawn = CONFIG.with_settings(method="a2c", batch_size=20), CONFIG.with_settings(epsilon_by_worker=True)
    for config, shown in ((CONFIG, True), (sampled, False), (drawn, False)):
        memory = make(config)
        memory.board.phase[:] = Phase.WORKING
        found = Observer(memory).observe()
        texts = (text.replace("--epsilon-by-worker", "") for text in (line(found), rendered(found)))
        assert ["epsilon" in text for text in texts] == [shown, shown]
        values = record_values(memory, 0, 1, Sample.take(memory, 1), held=False)
        assert [value is not None for value in (found.epsilon, values["epsilon"])] == [shown, shown]
