"""The promise holds for rounds of gradients: weights depend on configuration and seed alone.

Real runs of Breakout with four workers and sixty rounds of five ticks, in spans of ten.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.exact.conftest import Undisturbed, kill_when, stop_at
from tests.support.runs import begun, finish, flags_in, kill, records, same_summary, start, summary, wait_until

RMS = flags_in("optimizer=rms optimizer_decay=0.99 optimizer_epsilon=1e-3")
ROUNDS = RMS | flags_in("schedule=ordered workers=4 lane_envs=1 t_max=5 snapshot_every_steps=200 total_steps=1_200")
OF_VALUES = {"epsilon_steps": "600", "round_steps": "100"}
METHODS = {
    "a2c": {"method": "a2c", "clip_gradient": "5"},
    "lstm": flags_in("method=a2c recurrent"),
    "n-step-q": flags_in("method=n-step-q epsilon_by_worker") | OF_VALUES,
    "sarsa": {"method": "sarsa", **OF_VALUES},
    "dqn": flags_in("method=dqn optimizer=adam optimizer_decay=0.999 learning_rate=1e-4 local_replay=150")
    | flags_in("learning_starts=90 batch_size=8 round_steps=100"),
}
"""Forms of a gradient: a policy, with and without a state, action values, the action that follows, and a replay buffer
of each worker."""
USUAL = "a2c"
DYING = ("-m", "tests.support.dying_worker")


def _flags(method: str, actors: str) -> dict[str, Any]:
    return ROUNDS | METHODS[method] | {"actors": actors}


@pytest.fixture
def alone(undisturbed: Undisturbed) -> Undisturbed:
    """Run directory of a run of one process that nothing disturbed, by its method."""
    return lambda method: undisturbed(**_flags(method, "1"))


def _require_same(run_dir: Path, undisturbed: Path, stopped_at: int | None = None) -> dict[str, Any]:
    """Compare summary and records; a stop at a boundary within a record splits it in two, whose means are its own."""
    last = same_summary(run_dir, undisturbed)
    metrics = ("round", "steps", "updates", "loss", "gradient_norm", "learning_rate", "valid_steps")
    found, wanted = (
        [{name: each[name] for name in metrics} for each in records(at, "round")] for at in (run_dir, undisturbed)
    )
    if stopped_at is None or stopped_at % 10 == 0:
        assert found == wanted
        return last
    (whole,) = [each for each in wanted if each not in found]
    first, second = (each for each in found if each not in wanted)
    assert (first["round"], second["round"], second["steps"]) == (whole["round"], stopped_at, whole["steps"])
    assert first["valid_steps"] + second["valid_steps"] == whole["valid_steps"]
    share = (stopped_at - whole["round"]) / 10
    for name in ("loss", "gradient_norm"):
        assert share * first[name] + (1 - share) * second[name] == pytest.approx(whole[name])
    return last


def test_every_worker_contributes_a_gradient_a_round(alone: Undisturbed) -> None:
    last = summary(alone("a2c"))
    assert (last["rounds"], last["steps"], last["updates"]) == (60, 1_200, 240)
    assert (last["samples_per_step"], last["restarts"], last["exact"]) == (1.0, 0, True)
    assert last["episodes"] > 0
    spans = records(alone("a2c"), "round")
    assert [record["round"] for record in spans] == list(range(0, 60, 10))
    assert all(record["entropy"] > 0 and record["workers_busy"] > 0 for record in spans)
    assert not list((alone("a2c") / "checkpoints").glob("segment-*"))


RESUMED = [(USUAL, "1"), *(pytest.param(method, "4", marks=pytest.mark.stress) for method in METHODS)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("method", "actors"), RESUMED)
def test_deaths_in_a_shard_and_a_resume_are_exact(alone: Undisturbed, run_dir: Path, method: str, actors: str) -> None:
    """Each of two processes dies in its shard; the run continues with another number of processes."""
    stop_at(*begun(run_dir, program=DYING, **_flags(method, "2")), 24)
    stopped = summary(run_dir)
    assert stopped["restarts"] == 2
    assert stopped["redone_ticks"] > 0
    assert stopped["weights_sha256"] != summary(alone(method))["weights_sha256"]
    process = start(run_dir, "--resume", str(run_dir), actors=actors)
    finish(process)
    assert _require_same(run_dir, alone(method), stopped["rounds"])["actors"] == int(actors)


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", METHODS)
def test_a_hundred_kills_change_nothing(alone: Undisturbed, run_dir: Path, method: str) -> None:
    """Twenty-five for each form: four within a shard, seven of a process at work, the others of one that starts."""
    process, memory = begun(run_dir, program=DYING, **_flags(method, "2"))
    board = memory.board
    for i in range(7):
        wait_until(process, lambda boundary=18 + 5 * i: board.committed >= boundary)
        for number in (i % 2, 0, 1):
            before = board.restarts.sum()
            kill(process, f"worker {number}")
            wait_until(process, lambda before=before: board.restarts.sum() > before)  # type: ignore[misc]
    finish(process)
    assert _require_same(run_dir, alone(method))["restarts"] == 25


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize("method", [USUAL, "lstm"])
def test_evaluations_are_those_of_the_versions_at_their_steps(tmp_path: Path, method: str) -> None:
    """Six evaluations wait in a queue of four, so the process that commits waits for them; their servers are killed."""
    evaluates = {"eval_every_steps": "200", "eval_episodes": "2", "eval_envs": "2", "eval_max_frames": "400"}
    found = {}
    for actors, killed in (("1", ()), ("2", ("inference", "evaluator"))):
        run_dir = tmp_path / actors
        process, memory = begun(run_dir, **_flags(method, actors) | evaluates)
        queue = memory.evaluations
        for role in killed:
            kill_when(process, role, lambda q=queue: q.pending and q.request.read() % 2**40 >= 10)
        finish(process)
        assert summary(run_dir)["restarts"] == len(killed)
        workers = {f"worker {number}" for number in range(int(actors))}
        assert summary(run_dir)["roles"].keys() == {"inference", "evaluator", "scribe"} | workers
        found[actors] = [(each["steps"], each["mean_return"]) for each in records(run_dir, "evaluation")]
    assert [steps for steps, _ in found["1"]] == list(range(200, 1_400, 200))
    assert found["1"] == found["2"]
