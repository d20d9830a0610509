"""`launch.py bench ancestors`: jobs are rungs or presets, and rows name what was published."""

from __future__ import annotations

import pytest

from ringside.bench import ancestors
from ringside.bench.ancestors import JOBS, SYSTEMS, Options, measure
from ringside.bench.harness.tables import Report
from ringside.bench.ladder import rungs as ladder
from tests.conftest import Refused


def test_jobs_are_rungs_or_presets_of_a_system() -> None:
    rungs = {rung.name for rung in ladder.rungs()}
    for job in JOBS:
        assert (job.rung in rungs) != (job.preset is not None)
        assert job.system in SYSTEMS
    assert len({job.name for job in JOBS}) == len(JOBS)


def test_each_system_is_compared_with_its_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run_speed(game: str, seconds: float, words: tuple[str, ...]) -> float:
        asked.append((game, *words))
        return 200.0

    monkeypatch.setattr(ancestors, "_run_speed", run_speed)
    monkeypatch.setattr(ladder, "speed", lambda rung, options, game: {"alternate-1": 100.0}.get(rung.name, 400.0))
    report = Report("ancestors", "a table", ["ancestors"])
    measure(Options(repeats=1, only="fast-dqn before,fast-dqn both,a3c batched", device="cpu"), report)
    rows = {row.name: row for row in report.rows}
    assert rows["fast-dqn both"].limit == "fast-dqn before"
    assert rows["fast-dqn both"].ratio == 4.0
    assert rows["a3c batched"].limit is None
    assert "published: 6 to 10 batches of 128" in rows["a3c batched"].note
    assert asked == [("pong", "--preset", "a3c", "--device", "cpu")]


def test_a_job_that_does_not_exist(refused: Refused) -> None:
    assert "did you mean lapan last?" in refused("bench", "ancestors", "--only", "lapan lst")
