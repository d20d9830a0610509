"""The rungs of the ladder: each works, differs from the others, and samples as many transitions for a step."""

from __future__ import annotations

from typing import Any

import pytest

from ringside.bench.harness.measured_plans import make_plan
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.ladder import rungs as ladder
from ringside.bench.ladder.rungs import Options, Rung
from ringside.bench.ladder.solve import Learned, solve_run
from shared.config.settings import Config
from shared.errors import ConfigError

RUNGS = ladder.rungs()
SPEED = [*ladder.QUICKLY]


def config_of(rung: Rung, options: Options, *more: str) -> Config:
    return make_plan("pong", [*ladder._words(rung, options, "pong"), *more]).config


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_every_rung_is_a_run_that_samples_8_transitions_a_step(rung: Rung) -> None:
    config = config_of(rung, Options(device="cpu"), *SPEED)
    assert config.learn.batch_size / config.learn.train_every == 8
    assert rung.serial <= (config.learn.schedule == "alternate" and config.machine.actors == 1)
    assert (config.play.env is not None) == rung.wrapped
    assert config.machine.device == "cpu"


def test_no_two_rungs_are_the_same() -> None:
    shown = {(rung.serial, rung.gradients, rung.wrapped, rung.larger, *rung.words) for rung in RUNGS}
    assert len(shown) == len(RUNGS) == 7 + 2 + 3 * 4
    assert len({rung.name for rung in RUNGS}) == len(RUNGS)


def test_synchronized_means_all_envs_in_one_batch() -> None:
    configs = {rung.name: config_of(rung, Options(device="cpu")) for rung in RUNGS if rung.table == ladder.FAST_DQN}
    assert configs["concurrent-sync-8"].machine.inference_batch == 8
    assert configs["concurrent-8"].machine.inference_batch == 1
    assert configs["alternate-4"].learn.schedule == "alternate"
    assert all(config.play.lane_envs == 1 for config in configs.values())


def test_workers_stand_beside_batches_with_the_same_network() -> None:
    rungs = ladder.async_rungs()
    configs = {rung.name: config_of(rung, Options(device="cpu", async_=True)) for rung in rungs}
    assert list(configs)[-2:] == ["a3c", "impala"]
    assert {config.learn.network for config in configs.values()} == {"a3c"}
    for workers in ladder.ASYNC_WORKERS:
        for schedule in ("async", "ordered"):
            config = configs[f"{schedule}-{workers}"]
            assert (config.learn.schedule, config.play.workers) == (schedule, workers)


def test_lapans_ratio_can_be_had() -> None:
    config = config_of(RUNGS[2], Options(train_every=1), *SPEED)
    assert (config.learn.train_every, config.learn.batch_size, config.play.envs) == (3, 96, 3)


def test_shares_are_of_the_first_rung_and_a_wrong_rung_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def speed(rung: Rung, options: Options, game: str) -> float:
        if rung.name == "parallel":
            raise WrongResult("It is wrong.")
        return {"gradients": 10.0, "one-env": 20.0, "alternate-1": 5.0, "concurrent-1": 15.0}[rung.name]

    monkeypatch.setattr(ladder, "speed", speed)
    report = Report("ladder", "title")
    ladder.measure(Options(only="gradients,one-env,parallel,alternate-1,concurrent-1", repeats=2), report)
    shares = {row.name: (row.limit, row.ratio) for row in report.rows}
    assert shares == {
        "gradients": (None, None),
        "one-env": ("gradients", 2.0),
        "alternate-1": (None, None),
        "concurrent-1": ("alternate-1", 3.0),
    }
    assert report.wrong == {"parallel": "It is wrong."}
    assert report.code == 1


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"steps": 400, "updates": 90, "seconds": 1.0}, "one every 4 asked for"),
        ({"wrong": "The layers differ."}, "The layers differ"),
    ],
)
def test_a_serial_rung_is_checked(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], says: str) -> None:
    monkeypatch.setattr(ladder, "json_result", lambda command, seconds: told)
    with pytest.raises(WrongResult, match=says):
        ladder.speed(RUNGS[1], Options(), "pong")


def test_an_unsolved_game_is_missing_with_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "speed", lambda rung, options, game: 1.0)
    monkeypatch.setattr(ladder, "solve_run", lambda words, bound, minutes: Learned(120.0, 5_000, 17.0))
    report = Report("ladder", "title")
    ladder.measure(Options(only="ringside", repeats=1, solve=True), report)
    assert report.missing == {
        "ringside, solved": "Seed 1 had a mean of 17.0 after 5,000 steps and 2.0 minutes; solved is 18."
    }
    report = Report("ladder", "title")
    ladder.measure(Options(only="ringside", repeats=2, solve=True, bound=16.5), report)
    assert (report.rows[-1].name, report.rows[-1].values) == ("ringside, solved", (2.0, 2.0))


def test_unknown_rungs_and_games_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean parallel"):
        ladder.measure(Options(only="paralel"), Report("ladder", "title"))
    with pytest.raises(ConfigError, match="no game 'pnog'"):
        ladder.measure(Options(game="pnog"), Report("ladder", "title"))


WORDS = (
    *(
        "--env",
        "tests.support.pixel_game:factory",
        "--envs",
        "8",
        "--lane-envs",
        "2",
        "--actors",
        "1",
        "--device",
        "cpu",
    ),
    *("--network", "small", "--round-steps", "480", "--learning-starts", "480", "--total-steps", "200_000"),
)


@pytest.mark.stress
def test_a_run_is_watched_until_its_mean_is_reached() -> None:
    learned = solve_run(WORDS, bound=-5.0, minutes=1.0)
    assert learned.mean_return is not None
    assert -5.0 <= learned.mean_return < 3.0
    assert learned.steps >= 100 * 12
    assert learned.steps % 480 == 0
    assert 0 < learned.seconds < 60


def test_a_run_that_is_refused_says_why() -> None:
    with pytest.raises(CannotRun, match=r"code 2: launch\.py: --envs 7 cannot be divided"):
        solve_run((*WORDS, "--envs", "7"), bound=18.0, minutes=1.0)
