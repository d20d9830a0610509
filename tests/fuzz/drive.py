"""Has cases tried by workers, and counts how they ended."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from shared.root import ROOT
from tests.fuzz.readers import Target

WORKERS = 2
LONGEST_SECONDS = 1_500.0
"""Seconds that one worker may take for all its cases; it ends each case much earlier."""


@dataclass
class Tally:
    """Ends of the cases of one target."""

    name: str
    kinds: Counter[str] = field(default_factory=Counter)
    """Cases by how they ended: same, refused, fault."""
    faults: list[str] = field(default_factory=list)
    """A line for each cause, with the first case that has it."""

    @property
    def cases(self) -> int:
        """Number of cases tried."""
        return self.kinds.total()

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.cases:,} cases: {self.kinds['same']:,} read, {self.kinds['refused']:,} refused, "
            f"{self.kinds['fault']:,} faults"
        )

    def take(self, other: Tally) -> None:
        """Add the cases of another tally."""
        self.kinds += other.kinds
        self.faults += other.faults


TALLIES: list[Tally] = []
"""Tallies of all targets that were tried; printed at the end of the tests (conftest.py)."""


def tried(target: Target, runs: Path, scratch: Path) -> Tally:
    """Have all cases of a target tried, by some workers at the same time."""
    bounds = [target.cases * number // WORKERS for number in range(WORKERS + 1)]
    tally = Tally(target.name)
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = [
            pool.submit(_tried_between, target, runs, scratch / str(first), first, stop)
            for first, stop in pairwise(bounds)
        ]
        for part in parts:
            tally.take(part.result())
    TALLIES.append(tally)
    return tally


def _tried_between(target: Target, runs: Path, root: Path, first: int, stop: int) -> Tally:
    """Have the cases [first, stop) tried; a worker that dies is a fault, and another continues behind that case."""
    shutil.copytree(runs, root / "runs")
    tally, results = Tally(target.name), root / "results.jsonl"
    while first < stop:
        results.unlink(missing_ok=True)
        words = [sys.executable, "-m", "tests.fuzz.worker", str(root), target.name, str(first), str(stop)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        for line in lines:
            if "kind" in line:
                _count(tally, target.name, line)
        if done.returncode == 0:
            return tally
        assert lines, f"no case of {target.name} could be tried: {done.stderr}"
        words = done.stderr.strip().splitlines()[-1:]
        if "kind" not in lines[-1]:
            cause = f"the process died with {done.returncode}: {words}"
            _count(tally, target.name, lines[-1] | {"kind": "fault", "words": cause, "done": ""})
        else:
            tally.faults.append(f"{target.name}: after its last case: {words}")
        first = lines[-1]["case"] + 1
    return tally


def _count(tally: Tally, name: str, found: dict[str, Any]) -> None:
    """Count one case; of faults, the first of each cause is written down."""
    tally.kinds[found["kind"]] += 1
    if found["kind"] != "fault":
        return
    cause = re.sub(r"\d+", "N", found["words"].partition(": ")[0])
    if not any(f" {cause}: " in fault for fault in tally.faults):
        tally.faults.append(f"{name}, case {found['case']}: {cause}: {found['done']}: {found['words']}")
