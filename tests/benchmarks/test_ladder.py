"""The rungs of the ladder: each works, differs from the others, and samples as many transitions for a step."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from benchmarks import ladder
from benchmarks.harness import Options, Report, WrongResult
from benchmarks.measured_run import Throughput, measured_words, plan_of
from shared.config.presets import PRESETS
from shared.memory.plan import Plan

TABLES = {table: [rung for rung in ladder.RUNGS if rung.table == table] for table in ladder.TABLES}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Speeds of runs and of single processes, which a test may change, and the words of the last run."""
    speeds: dict[str, Any] = {"run": 200.0, "serial": 100.0}

    def run(words: list[str], seconds: float) -> Throughput:
        speeds["words"] = words
        return Throughput(speeds["run"], speeds["run"], 8.0, 1, 1.0, 0, {})

    def serial(jobs: list[tuple[object, Plan, bool]], seconds: float) -> list[float]:
        if speeds["serial"] is None:
            raise WrongResult("It is wrong.")
        return [speeds["serial"]]

    monkeypatch.setattr(ladder, "measure_run", run)
    monkeypatch.setattr(ladder, "measure_at_once", serial)
    return speeds


def report_of(names: str, *words: str) -> Report:
    options = Options(names=names.split(","), game="pong", seconds=1.0, repeats=2, words=["--device", "cpu", *words])
    report = Report("ladder", "title", console=Console(quiet=True), machine={})
    ladder.run(options, report)
    return report


def plan(rung: ladder.Rung, *words: str) -> Plan:
    wrapped = ("--env-kwargs", "game=pong") if "--env" in rung.words else ()
    return plan_of(measured_words("pong", ["--device", "cpu", *words], *rung.words, *wrapped))


@pytest.mark.parametrize("rung", TABLES["lapan"] + TABLES["fast-dqn"], ids=lambda rung: rung.name)
def test_every_rung_of_dqn_samples_8_transitions_a_step(rung: ladder.Rung) -> None:
    config = plan(rung).config
    assert config.learn.batch_size / config.learn.train_every == 8
    assert rung.serial <= (config.learn.schedule == "alternate" and config.machine.actors == 1)
    assert (config.play.env is None) == ("--env" not in rung.words)
    if rung.table == "fast-dqn":
        assert config.play.lane_envs == 1
        assert config.machine.inference_batch == (config.play.envs if "sync" in rung.name else 1)


def test_no_two_rungs_are_the_same() -> None:
    assert [len(rungs) for rungs in TABLES.values()] == [7, 2 + 3 * 4, 9, 12]
    for rungs in TABLES.values():
        assert len({(rung.serial, rung.gradients, rung.words) for rung in rungs}) == len(rungs)
    assert len(ladder.NAMES) == len(set(ladder.NAMES))
    batches = {rung.name: plan(rung).config.learn.batch_size for rung in TABLES["lapan"]}
    assert (batches["one-env"], batches["three-envs"], batches["light-parallel"]) == (32, 96, 128)


def test_jobs_are_rungs_or_presets_with_what_was_published() -> None:
    known = {rung.words for rung in TABLES["lapan"] + TABLES["fast-dqn"]}
    for rung in TABLES["jobs"]:
        assert rung.system
        assert rung.words in known or rung.words[1] in PRESETS
    assert TABLES["jobs"][0].published.startswith("556 steps/s on a GTX 1080")


def test_workers_stand_beside_batches_with_the_same_network() -> None:
    configs = {rung.name: plan(rung).config for rung in TABLES["async"]}
    assert list(configs)[-2:] == ["a3c", "impala"]
    assert {config.learn.network for config in configs.values()} == {"a3c"}
    for workers in ladder.ASYNC_WORKERS:
        for schedule in ("async", "ordered"):
            config = configs[f"{schedule}-{workers}"]
            assert (config.learn.schedule, config.play.workers) == (schedule, workers)


def test_shares_are_of_the_first_rung_of_a_table_or_system(measured: dict[str, Any]) -> None:
    report = report_of("gradients,parallel,ringside,fast-dqn before,fast-dqn both,a3c batched")
    shares = {name: (row.part, row.limit, row.ratio) for name, row in report.rows.items()}
    assert shares == {
        "gradients": ("lapan", None, None),
        "parallel": ("lapan", "gradients", 2.0),
        "ringside": ("lapan", "gradients", 2.0),
        "fast-dqn before": ("fast-dqn", None, None),
        "fast-dqn both": ("fast-dqn", "fast-dqn before", 1.0),
        "a3c batched": ("tensorpack", None, None),
    }
    assert report.rows["fast-dqn both"].note.startswith("published: 1,543 steps/s")


def test_a_wrong_rung_is_named_and_flags_of_the_user_come_last(measured: dict[str, Any]) -> None:
    measured["serial"] = None
    report = report_of("one-env,parallel", "--train-every", "4", "--batch-size", "128")
    assert report.wrong == {"one-env": "It is wrong."}
    assert measured["words"][-4:] == ["--train-every", "4", "--batch-size", "128"]
    assert measured["words"][measured["words"].index("--env-kwargs") + 1] == "game=pong"
