"""`launch.py bench checkpoint`, `balance` and `watch`: a run beside something, against the same run without."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import balance, checkpoint, watch
from tests.command.test_bench_throughput import ROUNDS, WORDS
from tests.conftest import Launch

TWO_ACTORS = ("--envs", "8", "--lane-envs", "2", "--actors", "2", "--inference-batch", "2", "--network", "small")
TWO_ACTORS += ("--learner-threads", "1", "--device", "cpu")
CASES = {
    "checkpoint": (("--seconds", "4", "--every", "1"), (*WORDS, *ROUNDS), checkpoint.WITH, checkpoint.WITHOUT),
    "balance": (("--seconds", "4"), TWO_ACTORS, balance.MOVING, balance.ALONE),
    "watch": (("--seconds", "2"), (*WORDS, *ROUNDS), watch.WATCHED, watch.ALONE),
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
