"""Settings of measured runs, and the check of their records."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness import WrongResult
from benchmarks.measured_run import NEVER_LEARNS, acting_words, check_records, measured_words, plan_of
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError

SCHEDULE = make_run_schedule(
    Config().with_settings(envs=8, round_steps=480, snapshot_every_steps=960, learning_starts=960, train_every=4)
)


def record(round_: int) -> dict[str, Any]:
    """Record of two rounds, of two seconds each, in which two episodes end and are reset."""
    stop = round_ + 2
    return {
        "round": round_,
        "steps": stop * 480,
        "updates": SCHEDULE.updates_before(stop),
        "steps_per_second": 240.0,
        "updates_per_second": (SCHEDULE.updates_before(stop) - SCHEDULE.updates_before(round_)) / 4,
        "valid_steps": 958,
        "episodes": stop,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"steps": 10 * 480 + 8}, "'steps': 4808"),
        ({"round": 9}, "'round': 9"),
        ({"updates": 959}, "'updates': 959"),
        ({"updates_per_second": 59.5}, "'updates of the round': 238"),
        ({"valid_steps": 900}, "6 episodes ended, but there were 64 resets"),
    ],
)
def test_other_work_than_asked_for_is_seen(changes: dict[str, Any], says: str | None) -> None:
    assert SCHEDULE.record_rounds == 2
    records = [record(round_) for round_ in (2, 4, 6, 8)]
    records[-1] |= changes
    if says is None:
        check_records(SCHEDULE, records)
    else:
        with pytest.raises(WrongResult, match=says):
            check_records(SCHEDULE, records)


ON_POLICY = ("--method", "a2c", "--envs", "8", "--round-steps", "1_280", "--device", "cpu")


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (["--device", "cpu"], ["--game", "pong", "--learning-starts", "5_000", "--round-steps", "1000"]),
        (["--device", "cpu", "--envs", "192"], ["--learning-starts", "5_000", "--round-steps", "1920"]),
        (["--round-steps=960"], ["--game", "pong", "--learning-starts", "5_000"]),
        (["--schedule", "alternate"], ["--game", "pong", "--learning-starts", "5_000"]),
        (ON_POLICY, ["--game", "pong"]),
        (["--preset", "a3c-async"], ["--game", "pong"]),
        (["--env=tests.support.pixel_game:factory", "--network", "small"], ["--learning-starts"]),
    ],
)
def test_a_measured_run_learns_early_in_short_rounds(words: list[str], before: list[str]) -> None:
    found = measured_words("pong", words)
    assert found[len(found) - len(words) :] == list(words)
    assert found[: len(before)] == before or (before[0] != "--game" and set(before) <= set(found))
    assert ("--game" in found) == ("--env=tests.support.pixel_game:factory" not in words)


def test_more_flags_come_before_those_of_the_user_and_ours_are_refused() -> None:
    found = measured_words("pong", ["--envs", "8"], "--preset", "quick", "--envs", "16")
    assert plan_of(found).config.play.envs == 8
    with pytest.raises(ConfigError, match="--run-dir after -- is given by the benchmark itself"):
        measured_words("pong", ["--run-dir", "x"])


def test_actors_of_an_on_policy_method_are_measured_before_the_first_update_of_dqn() -> None:
    plan = plan_of(["--game", "pong", *ON_POLICY])
    acting = plan_of(acting_words(plan))
    assert not acting.method.on_policy
    assert (acting.config.play.envs, acting.config.machine.actors) == (8, plan.config.machine.actors)
    assert acting.run_schedule.round_steps == 1_280
    assert acting.config.learn.learning_starts == int(NEVER_LEARNS[1])
