"""Checks, choices and counts of the benchmarks of runs, without a run."""

from __future__ import annotations

from typing import Any

import pytest

from ringside.bench import scaling, throughput
from ringside.bench.harness.gpu_use import GpuUse
from ringside.bench.harness.measured_plans import ROUNDS, early_learning, game_unless_env, make_plan, rounds_that_fit
from ringside.bench.harness.measured_runs import Throughput, check_records
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.scaling import actor_counts
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError

CONFIG = Config().with_settings(envs=8, round_steps=480, learning_starts=960, train_every=4, batch_size=32)
SIZES = make_run_schedule(CONFIG)


def record(round_: int) -> dict[str, Any]:
    """Records of a round of two seconds, in which one episode ends and is reset."""
    stop = round_ + 1
    return {
        "round": round_,
        "steps": stop * 480,
        "updates": SIZES.updates_before(stop),
        "steps_per_second": 240.0,
        "updates_per_second": SIZES.updates_in(round_) / 2,
        "valid_steps": 479,
        "episodes": stop,
    }


def checked(**changes: Any) -> None:
    """Check rounds 3 to 5, with changes in the record of round 5."""
    records = [record(round_) for round_ in (2, 3, 4, 5)]
    records[-1] |= changes
    check_records(SIZES, records[0], records[1:], {"steps": 6 * 480, "rounds": 6})


def test_a_run_that_did_its_work_passes() -> None:
    checked()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": 6 * 480 + 8}, "rounds have 480"),
        ({"round": 6}, "after round 4"),
        ({"updates": 479}, "479 in all instead of 480"),
        ({"updates_per_second": 59.5}, "did 119 updates instead of 120"),
        ({"valid_steps": 400}, "3 episodes ended, but there were 82 resets"),
    ],
)
def test_other_work_is_seen(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongResult, match=says):
        checked(**changes)


def test_rounds_become_shorter_only_and_only_unasked() -> None:
    plan = make_plan("breakout", ["--device", "cpu"])
    assert rounds_that_fit(plan, [], 30, 100_000) == []
    assert rounds_that_fit(plan, [], 30, 400) == ["--round-steps", str(30 * 400 // ROUNDS)]
    assert rounds_that_fit(plan, [], 1, 1) == ["--round-steps", "960"]
    assert rounds_that_fit(plan, ["--round-steps=9_000"], 30, 400) == ["--round-steps=9_000"]
    assert rounds_that_fit(make_plan("breakout", ["--schedule", "alternate"]), [], 30, 400) == []
    on_policy = ["--method", "a2c", "--envs", "8", "--round-steps", "1_280"]
    plan = make_plan("breakout", on_policy)
    assert rounds_that_fit(plan, [], 30, 100_000) == []
    assert rounds_that_fit(plan, [], 30, 1_000) == ["--snapshot-every-steps", str(30 * 1_000 // ROUNDS)]
    assert rounds_that_fit(plan, [], 1, 1) == ["--snapshot-every-steps", "1280"]
    assert rounds_that_fit(plan, ["--snapshot-every-steps", "9_000"], 1, 1) == ["--snapshot-every-steps", "9_000"]


def test_an_env_takes_the_place_of_the_game() -> None:
    assert game_unless_env("pong", ["--preset", "quick"]) == ["--game", "pong"]
    assert game_unless_env("pong", ["--env=my.games:make"]) == []
    assert make_plan("pong", ["--env", "tests.support.pixel_game:factory", "--network", "small"]).config.play.env


@pytest.mark.parametrize(
    ("cores", "lanes", "counts"),
    [(1, 48, [1]), (2, 48, [1, 2]), (6, 48, [1, 2, 4, 6]), (16, 48, [1, 2, 4, 8, 16]), (16, 6, [1, 2, 4])],
)
def test_numbers_of_actors(cores: int, lanes: int, counts: list[int]) -> None:
    assert actor_counts(cores, lanes) == counts


def _run(steps_per_second: float = 100.0, **summary: Any) -> Throughput:
    """Figures of a run that the rows use."""
    return Throughput("", steps_per_second, 25.0, 8.0, 1_000, 10.0, 1, 0.0, 1.0, {}, GpuUse(0.5, 11e9), summary)


def test_efficiency_is_the_share_of_so_many_single_actors() -> None:
    report = Report("scaling", "title")
    found = {"actors alone, 1": [_run(100.0), _run(200.0)], "actors alone, 4": [_run(300.0), _run(400.0)]}
    scaling._add(report, [1, 4], found)
    assert report.row("efficiency of 4 actors").values == (0.75, 0.5)
    assert not any(row.name == "efficiency of 1 actors" for row in report.rows)


def test_memory_of_a_gpu_is_told_apart() -> None:
    report = Report("throughput", "title")
    memory = {"device_bytes": {"learner": 8e9, "inference": 1e9}, "replay_device_bytes": 7e9}
    throughput._add_device_memory(report, [memory], [GpuUse(0.5, 11e9)])
    assert [row.values for row in report.rows] == [(8e3,), (1e3,), (7e3,), (2e3,)]


def test_a_role_without_records_has_its_share_from_the_summary() -> None:
    report = Report("throughput", "title")
    throughput._add_role_busy(report, "scribe", [_run(roles={"scribe": {"busy": 0.25}})])
    assert report.row("scribe").values == (0.25,)


def test_a_measured_run_learns_early_where_learning_waits_for_a_replay() -> None:
    on_policy = ["--preset", "quick", "--method", "a2c", "--envs", "16", "--round-steps", "160", "--batch-size", "160"]
    assert early_learning([]) == ["--learning-starts", "5000"]
    assert early_learning(on_policy) == []
    assert make_plan("breakout", [*on_policy, "--device", "cpu"]).method.on_policy


WORKERS = ("--preset", "a3c-async", "--actors", "2")


def test_a_run_of_workers_is_measured_whole_and_without_its_order() -> None:
    plan, runs = make_plan("breakout", WORKERS), throughput.Runs([], [], 100)
    contenders = throughput._contenders(throughput.Options(), throughput.PARTS, runs, plan)
    assert [each.name for each in contenders] == [
        *(throughput.END_TO_END, throughput.BARE, throughput.EVALUATED),
        *("async, as it is", "ordered, as it is"),
    ]
    with pytest.raises(ConfigError, match="bench ladder --async"):
        scaling.measure(scaling.Options(words=WORKERS[:2]), Report("scaling", "title"))


def test_figures_of_workers_stand_beside_the_bare_emulator() -> None:
    memory = {
        "shared_bytes": 1e8,
        "private_bytes": {"worker 0": 3e8, "worker 1": 4e8, "scribe": 5e7},
        "device_bytes": {},
    }
    summary = {"memory": memory, "roles": {"scribe": {"busy": 0.1}}, "limit": {"sentence": "The workers limit it."}}
    run, plan, report = _run(90.0, **summary), make_plan("breakout", WORKERS), Report("throughput", "title")
    run.busy["workers"] = 0.9
    throughput._add_sides(report, {throughput.BARE: [900.0]}, plan)
    throughput._add_run(report, [run], plan)
    rows = {row.name: row for row in report.rows}
    assert (rows["end to end"].limit, rows["end to end"].ratio) == (throughput.BARE, 0.1)
    assert rows["samples a step"].note == "asked: 1"
    assert (rows["workers"].values, rows["private, worker"].values) == ((0.9,), (400.0,))
    assert (report.missing, report.wrong) == ({}, {})
    assert report.notes == ["What the run says of itself: The workers limit it."]
