"""The promise holds for an on-policy method: weights depend on configuration and seed alone.

Real runs of Breakout in `alternate`, with sixty rounds of five ticks and a snapshot every five rounds.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import finish, kill, memory_of, start, summary, wait_until

A2C = {
    "method": "a2c",
    "schedule": "alternate",
    "round_steps": "40",
    "batch_size": "40",
    "optimizer": "rms",
    "optimizer_decay": "0.99",
    "optimizer_epsilon": "1e-5",
    "clip_gradient": "0.5",
    "snapshot_every_steps": "200",
    "total_steps": "2_400",
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Summary of a run that nothing disturbed."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(start(run_dir, **A2C))
    return summary(run_dir)


def _require_same(run_dir: Path, undisturbed: dict[str, Any]) -> dict[str, Any]:
    last = summary(run_dir)
    for name in ("weights_sha256", "rounds", "steps", "updates", "episodes", "mean_return_100"):
        assert last[name] == undisturbed[name], name
    return last


def test_every_round_learns(undisturbed: dict[str, Any]) -> None:
    assert (undisturbed["rounds"], undisturbed["updates"], undisturbed["restarts"]) == (60, 60, 0)
    assert undisturbed["episodes"] > 0


@pytest.mark.stress
def test_the_number_of_actors_changes_nothing(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    finish(start(tmp_path / "run", **A2C | {"actors": "1"}))
    assert _require_same(tmp_path / "run", undisturbed)["actors"] == 1


def test_kills_and_a_resume_change_nothing(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    """Learner and actor are killed between two snapshots; then the run is stopped and continued."""
    run_dir = tmp_path / "run"
    process = start(run_dir, **A2C)
    board = memory_of(process, run_dir).board
    for round_, role in ((12, "learner"), (23, "actor 0")):
        wait_until(process, lambda r=round_: board.committed >= r)
        kill(process, role)
    wait_until(process, lambda: board.committed >= 32)
    process.send_signal(signal.SIGTERM)
    finish(process)
    stopped = summary(run_dir)
    assert stopped["restarts"] == 2
    assert stopped["weights_sha256"] != undisturbed["weights_sha256"]
    finish(start(run_dir, "--resume", str(run_dir), actors="4"))
    assert _require_same(run_dir, undisturbed)["actors"] == 4
