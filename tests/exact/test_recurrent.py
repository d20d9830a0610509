"""The promise holds for a recurrent network: inference keeps no state that a kill could lose.

Real runs of Breakout with sixty rounds of five ticks, and a snapshot every five rounds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exact.conftest import Undisturbed, stop_at
from tests.exact.test_on_policy import METHODS, ROUNDS
from tests.support.runs import begun, evaluations, finish, kill, memory_of, same_summary, start, summary, wait_until

CASES = [(method, schedule) for method in ("a2c", "a3c", "ppo", "vtrace") for schedule in ("alternate", "concurrent")]
USUAL = ("vtrace", "concurrent")
"""The case whose evaluations are disturbed."""
EVALUATION = {"eval_every_steps": "1_200", "eval_episodes": "3", "eval_max_frames": "400"}
stress = pytest.mark.stress


def _flags(method: str, schedule: str) -> dict[str, str]:
    return ROUNDS | METHODS[method] | EVALUATION | {"schedule": schedule}


def _require_same(run_dir: Path, undisturbed: Path) -> None:
    assert same_summary(run_dir, undisturbed)["exact"]
    assert evaluations(run_dir) == evaluations(undisturbed)


@pytest.mark.stress
def test_the_death_of_inference_loses_no_state(tmp_path: Path) -> None:
    flags = ROUNDS | METHODS["vtrace"] | {"schedule": "concurrent", "total_steps": "800"}
    finish(start(tmp_path / "plain", "--recurrent", **flags))
    process = start(tmp_path / "killed", "--recurrent", **flags)
    board = memory_of(process, tmp_path / "killed").board
    wait_until(process, lambda: board.committed >= 7)
    kill(process, "inference")
    finish(process)
    assert summary(tmp_path / "killed")["restarts"] == 1
    _require_same(tmp_path / "killed", tmp_path / "plain")


@stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("method", "schedule"), CASES)
def test_kills_a_resume_and_the_number_of_actors_change_nothing(
    undisturbed: Undisturbed, tmp_path: Path, method: str, schedule: str
) -> None:
    """Inference, an actor and the learner are killed within a span; then the run is stopped and continued."""
    run_dir = tmp_path / "run"
    process, memory = begun(run_dir, "--recurrent", **_flags(method, schedule) | {"actors": "1"})
    for round_, role in ((8, "inference"), (13, "actor 0"), (23, "learner")):
        wait_until(process, lambda r=round_: memory.board.committed >= r)
        kill(process, role)
    stop_at(process, memory, 33)
    assert summary(run_dir)["restarts"] == 3
    finish(start(run_dir, "--resume", str(run_dir), actors="4"))
    _require_same(run_dir, undisturbed("--recurrent", **_flags(method, schedule)))


@stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("method", "schedule"), CASES)
def test_the_number_of_actors_changes_nothing(
    undisturbed: Undisturbed, tmp_path: Path, method: str, schedule: str
) -> None:
    for actors in ("1", "2", "4"):
        run_dir = tmp_path / f"run-{actors}"
        finish(start(run_dir, "--recurrent", **_flags(method, schedule) | {"actors": actors}))
        _require_same(run_dir, undisturbed("--recurrent", **_flags(method, schedule)))


@stress
@pytest.mark.timeout(400)
def test_an_evaluation_survives_the_death_of_its_servers(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Inference and evaluator are killed while they play it."""
    run_dir = tmp_path / "run"
    process = start(run_dir, "--recurrent", **_flags(*USUAL))
    queue = memory_of(process, run_dir).evaluations
    for role in ("inference", "evaluator"):
        wait_until(process, lambda: queue.pending and queue.request.read() % 2**40 >= 10)
        kill(process, role)
    finish(process)
    _require_same(run_dir, undisturbed("--recurrent", **_flags(*USUAL)))
