"""Stops at any boundary change nothing: weights, replay, episodes and evaluations are those of an undisturbed run.

Each run is stopped three times at boundaries that have no regular snapshot, and continued with another number of actors
and another distance of snapshots. In every stop a process is killed between the request and the checkpoint.
"""

import signal
from pathlib import Path

import pytest

from tests.exact.conftest import stop_at
from tests.support.runs import begun, evaluations, finish, flags_in, records, same_summary, start, summary

STEPS = {"total_steps": "4_800", "snapshot_every_steps": "2_000"}
SHORT = STEPS | {"round_steps": "40"}
ON_POLICY = SHORT | {"batch_size": "20", "optimizer": "rms", "optimizer_decay": "0.99", "optimizer_epsilon": "1e-5"}
ALTERNATE = SHORT | {"schedule": "alternate", "train_every": "40"}
EVALUATED = {"eval_every_steps": "960", "eval_episodes": "2", "eval_envs": "2", "eval_max_frames": "400"}
WORKERS = STEPS | {"schedule": "ordered", "workers": "4", "t_max": "5", "optimizer": "rms"}

CASES = {
    "ppo": ON_POLICY | EVALUATED | flags_in("method=ppo schedule=alternate total_steps=2_000 eval_every_steps=640"),
    "vtrace": ON_POLICY | flags_in("method=vtrace schedule=concurrent"),
    "lstm": ON_POLICY | flags_in("method=a2c recurrent schedule=alternate total_steps=3_200"),
    "concurrent": STEPS | EVALUATED | flags_in("snapshot_every_steps=1_440"),
    "alternate": ALTERNATE | EVALUATED,
    "prioritized": ALTERNATE | flags_in("prioritized"),
    "prioritized-concurrent": STEPS | flags_in("prioritized snapshot_every_steps=1_440"),
    "ordered": WORKERS | EVALUATED | flags_in("method=a2c"),
    "ordered-replay": WORKERS | flags_in("method=dqn local_replay=400 batch_size=8"),
}
KILLED = {"ppo": ("learner", "actor 0", "scribe"), "ordered": ("worker 0", "worker 1", "scribe")}
OTHERS = ("inference", "learner", "actor 1")


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_stops_at_any_boundary_change_nothing(case: str, tmp_path: Path, run_dir: Path) -> None:
    flags, undisturbed = CASES[case], tmp_path / "undisturbed"
    finish(start(undisturbed, **flags))
    rounds = summary(undisturbed)["rounds"]
    changes = [{}, {"snapshot_every_steps": "1_000"}, {"snapshot_every_steps": "4_000", "actors": "3"}]
    ends = []
    killed = KILLED["ordered"] if "workers" in flags else KILLED.get(case, OTHERS)
    for share, role, change in zip((0.23, 0.51, 0.78), killed, changes, strict=True):
        resumed = ("--resume", str(run_dir)) if ends else ()
        process, memory = begun(run_dir, *resumed, **(change if ends else flags))
        assert "Stopping: the run is saved" in stop_at(process, memory, share * rounds, signal.SIGINT, role)
        assert not summary(run_dir)["finished"]
        ends.append(summary(run_dir)["rounds"])
    finish(start(run_dir, "--resume", str(run_dir)))
    same_summary(run_dir, undisturbed)
    assert _episodes(run_dir) == _episodes(undisturbed)
    assert evaluations(run_dir) == evaluations(undisturbed)
    split = {record["round"] for record in records(run_dir, "round")}
    assert split == {record["round"] for record in records(undisturbed, "round")} | set(ends)


@pytest.mark.stress
@pytest.mark.parametrize("schedule", ["free", "async"])
def test_an_inexact_run_stops_at_any_boundary_too(schedule: str, run_dir: Path) -> None:
    flags = STEPS | {"snapshot_every_steps": "1_440"} if schedule == "free" else WORKERS | {"method": "a2c"}
    process, memory = begun(run_dir, **flags | {"schedule": schedule})
    output = stop_at(process, memory, 0.4 * memory.run_schedule.rounds, signal.SIGINT)
    assert "drop" not in output.rpartition("Ctrl-C once more")[2].partition("\n")[2]
    stopped = summary(run_dir)
    assert 0.4 <= stopped["steps"] / 4_800 < 1
    finish(start(run_dir, "--resume", str(run_dir)))
    assert summary(run_dir)["finished"]
    assert stopped["episodes"] <= summary(run_dir)["episodes"]


def _episodes(run_dir: Path) -> list[dict[str, object]]:
    """Episodes without the first round of the record that they are in, which a stop may split."""
    return [{name: value for name, value in each.items() if name != "round"} for each in records(run_dir, "episode")]
