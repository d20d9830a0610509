"""The promise holds for an on-policy method: weights depend on configuration and seed alone.

Real runs of Breakout with sixty rounds of five ticks. The rounds between two snapshots change no weight, either.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import finish, kill, memory_of, records, start, summary, wait_until

A2C = {
    "method": "a2c",
    "round_steps": "40",
    "batch_size": "40",
    "optimizer": "rms",
    "optimizer_decay": "0.99",
    "optimizer_epsilon": "1e-5",
    "clip_gradient": "0.5",
    "snapshot_every_steps": "200",
    "total_steps": "2_400",
}
"""A snapshot every five rounds."""
SCHEDULES = pytest.mark.parametrize("schedule", ["alternate", "concurrent"])
stress = pytest.mark.stress


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run directory of a run that nothing disturbed, by its schedule."""

    @cache
    def run(schedule: str) -> Path:
        run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
        finish(start(run_dir, **A2C, schedule=schedule))
        return run_dir

    return run


def _require_same(run_dir: Path, undisturbed: Path) -> dict[str, Any]:
    last, expected = summary(run_dir), summary(undisturbed)
    for name in ("weights_sha256", "rounds", "steps", "updates", "episodes", "mean_return_100", "exact"):
        assert last[name] == expected[name], name
    return last


@SCHEDULES
def test_every_round_learns_and_leaves_a_record_a_span(undisturbed: Callable[[str], Path], schedule: str) -> None:
    run_dir = undisturbed(schedule)
    last, first = summary(run_dir), 1 if schedule == "concurrent" else 0
    assert (last["rounds"], last["updates"], last["restarts"], last["exact"]) == (60, 60 - first, 0, True)
    assert last["episodes"] > 0
    spans = records(run_dir, "round")
    assert [record["round"] for record in spans] == list(range(0, 60, 5))
    assert [record["samples_per_step"] for record in spans] == [0.8 if first else 1.0, *[1.0] * 11]
    assert all(record["entropy"] > 0 for record in spans), "means over the updates of the span"
    segments = sorted(path.name for path in (run_dir / "checkpoints").glob("segment-*"))
    assert segments == (["segment-00000059.ring"] if schedule == "concurrent" else []), "none but a checkpoint's"


@stress
def test_the_number_of_actors_changes_nothing(undisturbed: Callable[[str], Path], tmp_path: Path) -> None:
    finish(start(tmp_path / "run", **A2C | {"actors": "1", "schedule": "alternate"}))
    assert _require_same(tmp_path / "run", undisturbed("alternate"))["actors"] == 1


@pytest.mark.parametrize(
    ("schedule", "rounds_apart"),
    [
        ("alternate", 5),
        ("concurrent", 1),
        pytest.param("alternate", 1, marks=stress),
        pytest.param("concurrent", 5, marks=stress),
    ],
)
def test_kills_a_resume_and_the_distance_of_snapshots_change_nothing(
    undisturbed: Callable[[str], Path], tmp_path: Path, schedule: str, rounds_apart: int
) -> None:
    """Learner and actor are killed between two snapshots; then the run is stopped and continued."""
    run_dir = tmp_path / "run"
    process = start(run_dir, **A2C | {"schedule": schedule, "snapshot_every_steps": str(40 * rounds_apart)})
    board = memory_of(process, run_dir).board
    for round_, role in ((12, "learner"), (23, "actor 0")):
        wait_until(process, lambda r=round_: board.committed >= r)
        kill(process, role)
    wait_until(process, lambda: board.committed >= 32)
    process.send_signal(signal.SIGTERM)
    finish(process)
    stopped = summary(run_dir)
    assert stopped["restarts"] == 2
    assert stopped["rounds"] % rounds_apart == 0
    assert stopped["weights_sha256"] != summary(undisturbed(schedule))["weights_sha256"]
    finish(start(run_dir, "--resume", str(run_dir), actors="4"))
    assert _require_same(run_dir, undisturbed(schedule))["actors"] == 4


@pytest.mark.parametrize("schedule", ["concurrent", pytest.param("alternate", marks=stress)])
def test_without_the_last_round_a_run_is_inexact_where_it_needs_it(
    undisturbed: Callable[[str], Path], tmp_path: Path, schedule: str
) -> None:
    run_dir = tmp_path / "run"
    process = start(run_dir, "--no-checkpoint-replay", **A2C, schedule=schedule)
    board = memory_of(process, run_dir).board
    wait_until(process, lambda: board.committed >= 22)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert f"--resume {run_dir}" in output
    steps = summary(run_dir)["steps"]
    output = finish(start(run_dir, "--resume", str(run_dir)))
    last = summary(run_dir)
    assert last["finished"]
    if schedule == "alternate":
        _require_same(run_dir, undisturbed(schedule))
        return
    assert (last["exact"], last["inexact_since_steps"]) == (False, steps)
    assert f"Since step {steps:,} this run" in output
    assert "or it lacks its last round" in output
