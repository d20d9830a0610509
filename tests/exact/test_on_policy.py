"""The promise holds for an on-policy method: weights depend on configuration and seed alone.

Real runs of Breakout with sixty rounds of five ticks. The rounds between two snapshots change no weight, either. With a
recurrent network inference keeps no state that a kill could lose; these runs are evaluated, too.
"""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.exact.conftest import Undisturbed, kill_when, stop_at
from tests.support.runs import Flags, begun, evaluations, finish, flags_in, records, same_summary, start, summary

RMS = flags_in("optimizer=rms optimizer_decay=0.99 optimizer_epsilon=1e-5 clip_gradient=0.5")
ROUNDS = RMS | flags_in("round_steps=40 batch_size=20 snapshot_every_steps=200 total_steps=2_400")
"""A snapshot every five rounds."""
EVALUATED = flags_in("recurrent eval_every_steps=1_200 eval_episodes=3 eval_max_frames=400")
METHODS = {
    "a2c": {"method": "a2c"},
    "a3c": {"method": "a3c", "return_steps": "3"},
    "ppo": {"method": "ppo", "epochs": "2"},
    "pqn": {"method": "pqn", "epsilon_steps": "1_000"},
    "vtrace": {"method": "vtrace"},
}
EPOCHS = {"ppo": 2, "pqn": 2}
"""Passes over a round, where it is not one."""
RECURRENT = {f"recurrent {name}": METHODS[name] | EVALUATED for name in ("a2c", "a3c", "ppo", "vtrace")}
CASES = [(method, schedule) for method in METHODS | RECURRENT for schedule in ("alternate", "concurrent")]
USUAL = ("ppo", "alternate")
"""The case of `make test`, which has an undisturbed run of `concurrent` in tests/learn."""
stress = pytest.mark.stress


def _flags(method: str, schedule: str) -> Flags:
    return ROUNDS | (METHODS | RECURRENT)[method] | {"schedule": schedule}


@pytest.fixture
def alone(undisturbed: Undisturbed) -> Undisturbed:
    """Run directory of a run that nothing disturbed, by its method and schedule."""
    return lambda method, schedule: undisturbed(**_flags(method, schedule))


def _require_same(run_dir: Path, alone: Path) -> dict[str, Any]:
    assert evaluations(run_dir) == evaluations(alone)
    return same_summary(run_dir, alone)


@pytest.mark.parametrize(("method", "schedule"), [USUAL, pytest.param("vtrace", "concurrent", marks=stress)])
def test_every_round_learns_and_leaves_a_record_a_span(alone: Undisturbed, method: str, schedule: str) -> None:
    run_dir, epochs = alone(method, schedule), EPOCHS.get(method, 1)
    last, first = summary(run_dir), 1 if schedule == "concurrent" else 0
    updates = 2 * epochs * (60 - first)
    assert (last["rounds"], last["updates"], last["restarts"], last["exact"]) == (60, updates, 0, True)
    assert last["episodes"] > 0
    spans = records(run_dir, "round")
    assert [record["round"] for record in spans] == list(range(0, 60, 5))
    assert [record["samples_per_step"] for record in spans] == [epochs * (0.8 if first else 1.0), *[epochs] * 11]
    assert all(record["entropy"] > 0 for record in spans), "means over the updates of the span"
    segments = sorted(path.name for path in (run_dir / "checkpoints").glob("segment-*"))
    assert segments == (["segment-00000059.ring"] if schedule == "concurrent" else []), "none but a checkpoint's"


@stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("method", "schedule"), CASES)
def test_the_number_of_actors_changes_nothing(alone: Undisturbed, tmp_path: Path, method: str, schedule: str) -> None:
    for actors in (1, 4):
        run_dir = tmp_path / f"run-{actors}"
        finish(start(run_dir, **_flags(method, schedule) | {"actors": str(actors)}))
        assert _require_same(run_dir, alone(method, schedule))["actors"] == actors


DISTURBED = [
    (*USUAL, 5),
    *(pytest.param(*case, 1, marks=stress) for case in CASES if case[0] not in RECURRENT),
    *(pytest.param(*case, 5, marks=stress) for case in CASES if case != USUAL),
]


@pytest.mark.parametrize(("method", "schedule", "rounds_apart"), DISTURBED)
def test_kills_a_resume_and_the_distance_of_snapshots_change_nothing(
    alone: Undisturbed, run_dir: Path, method: str, schedule: str, rounds_apart: int
) -> None:
    """Processes are killed between two snapshots; the run is stopped, and continued to a later end."""
    flags = _flags(method, schedule) | {"snapshot_every_steps": str(40 * rounds_apart), "total_steps": "2_200"}
    process, memory = begun(run_dir, **flags)
    for round_, role in ((8, "inference"), (12, "learner"), (23, "actor 0")):
        kill_when(process, role, lambda r=round_: memory.board.committed >= r)
    stop_at(process, memory, 32, signal.SIGINT, "learner")
    stopped = summary(run_dir)
    assert stopped["restarts"] in (3, 4), "it may have made its last commit"
    assert stopped["weights_sha256"] != summary(alone(method, schedule))["weights_sha256"]
    finish(start(run_dir, "--resume", str(run_dir), actors="4", total_steps=ROUNDS["total_steps"]))
    assert _require_same(run_dir, alone(method, schedule))["actors"] == 4


@stress
@pytest.mark.timeout(400)
def test_an_evaluation_survives_the_death_of_its_servers(alone: Undisturbed, run_dir: Path) -> None:
    """Inference and evaluator are killed while they play it."""
    case = ("recurrent vtrace", "concurrent")
    process, memory = begun(run_dir, **_flags(*case))
    queue = memory.evaluations
    for role in ("inference", "evaluator"):
        kill_when(process, role, lambda: queue.pending and queue.request.read() % 2**40 >= 10)
    finish(process)
    _require_same(run_dir, alone(*case))


@stress
@pytest.mark.parametrize(("method", "schedule"), [("vtrace", "concurrent"), ("ppo", "alternate")])
def test_a_run_without_a_needed_round_is_inexact(alone: Undisturbed, run_dir: Path, method: str, schedule: str) -> None:
    assert f"--resume {run_dir}" in stop_at(*begun(run_dir, "--no-checkpoint-replay", **_flags(method, schedule)), 22)
    steps = summary(run_dir)["steps"]
    if schedule == "concurrent":
        assert "keeps no replay" in finish(start(run_dir, "--resume", str(run_dir), "--require-exact"), code=2)
    output = finish(start(run_dir, "--resume", str(run_dir)))
    last = summary(run_dir)
    assert last["finished"]
    if schedule == "alternate":
        _require_same(run_dir, alone(method, schedule))
        return
    assert (last["exact"], last["inexact_since_steps"]) == (False, steps)
    assert f"Since step {steps:,} this run" in output
    assert "or it lacks its last round" in output
