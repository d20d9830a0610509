"""Ten thousand mutations of a run: each reads as the run, or an older checkpoint of it, or is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.drive import tried
from tests.fuzz.readers import TARGETS, Target

LEAST_CASES = 10_000


def test_there_are_as_many_cases_as_are_promised() -> None:
    assert sum(target.cases for target in TARGETS) >= LEAST_CASES


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_a_mutated_run_is_read_as_it_was_or_refused(target: Target, runs: Path, tmp_path: Path) -> None:
    tally = tried(target, runs, tmp_path)
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.cases == target.cases
    assert tally.kinds["same"]
    assert tally.kinds["refused"]
