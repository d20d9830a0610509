"""Ten thousand mutations of a run: each reads as the run, or an older checkpoint of it, or is refused in a sentence.

Three hundred of them through the command, which succeeds, or ends with exit code 2 and one sentence.
"""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.root import ROOT
from tests.fuzz.readers import COMMANDS, TARGETS, Target

WORKERS = 2
LONGEST_SECONDS = 1_500.0
"""Seconds that one worker may take for all its cases; it ends each case much earlier."""


def test_there_are_as_many_cases_as_are_promised() -> None:
    assert sum(target.cases for target in TARGETS) >= 10_000
    assert sum(target.cases for target in COMMANDS) >= 300


def _results(target: Target, runs: Path, scratch: Path, worker: int) -> list[dict[str, Any]]:
    """Have a worker try its part of the cases; return how each ended."""
    root = scratch / str(worker)
    shutil.copytree(runs, root / "runs")
    bounds = [str(target.cases * number // WORKERS) for number in (worker, worker + 1)]
    words = [sys.executable, "-m", "tests.fuzz.worker", str(root), target.name, *bounds]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    results = root / "results.jsonl"
    found = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    assert done.returncode == 0, f"the process died after {found[-1:]}: {done.stderr}"
    return found


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", [*TARGETS, *COMMANDS], ids=lambda target: target.name.replace(" ", "-"))
def test_a_mutated_run_is_read_as_it_was_or_refused(target: Target, runs: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = pool.map(partial(_results, target, runs, tmp_path), range(WORKERS))
    cases = [case for part in parts for case in part]
    faults = {re.sub(r"\d+", "N", case["words"].partition(": ")[0]): case for case in cases if case["kind"] == "fault"}
    assert not faults, "\n".join(map(str, faults.values()))
    kinds = Counter(case["kind"] for case in cases)
    print(target.name, dict(kinds))
    assert kinds.total() == target.cases
    assert target in COMMANDS or (kinds["same"] and kinds["refused"])
