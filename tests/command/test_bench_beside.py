"""`launch.py bench checkpoint`, `balance`, `watch` and `memory`: a run beside something, and looks at a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ringside.bench import checkpoints, lane_moves, viewers
from tests.command.test_bench_throughput import ROUNDS, WORDS
from tests.conftest import Launch, Refused

TWO_ACTORS = ("--envs", "8", "--lane-envs", "2", "--actors", "2", "--inference-batch", "2", "--network", "small")
TWO_ACTORS += ("--learner-threads", "1", "--device", "cpu")
CASES = {
    "checkpoint": (("--seconds", "4", "--every", "1"), (*WORDS, *ROUNDS), checkpoints.WITH, checkpoints.WITHOUT),
    "balance": (("--seconds", "4"), TWO_ACTORS, lane_moves.MOVING, lane_moves.ALONE),
    "watch": (("--seconds", "2"), (*WORDS, *ROUNDS), viewers.WATCHED, viewers.ALONE),
}


@pytest.mark.stress
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", CASES)
def test_a_run_is_compared_with_the_same_run(launched: Launch, tmp_path: Path, name: str) -> None:
    if name == "balance" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one core none is slower than another")
    options, flags, measured, limit = CASES[name]
    done = launched("bench", name, *options, "--repeats", "1", "--json", "out.json", "--", *flags, timeout=480)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row for row in found["rows"]}
    assert rows[measured]["limit"] == limit
    assert rows[measured]["ratio"] > 0


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_start_and_memory_of_a_run(launched: Launch, tmp_path: Path) -> None:
    words = ("bench", "memory", "--repeats", "3", "--seconds", "0.5", "--json", "out.json")
    done = launched(*words, "--", *TWO_ACTORS, *ROUNDS, timeout=280)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row["values"] for row in found["rows"]}
    starts = rows.pop("an actor's start")
    assert len(starts) == 2
    assert min(starts) > 0
    assert rows.keys() == {"learner", "inference", "scribe", "actor 0", "actor 1"}
    assert all(len(looks) == 3 and min(looks) > 10 for looks in rows.values())


def test_only_a_run_that_goes_on_has_memory(launch: Launch, refused: Refused, five_rounds: Path) -> None:
    assert "omit those after --" in refused("bench", "memory", "--run", str(five_rounds), "--", "--actors", "2")
    assert f"There is no run {five_rounds}s" in refused("bench", "memory", "--run", f"{five_rounds}s")
    launch("bench", "memory", "--run", str(five_rounds), "--json", "out.json")
    found = json.loads(Path("out.json").read_text())
    assert found["missing"] == {"memory": f"The run {five_rounds} does not go on."}
