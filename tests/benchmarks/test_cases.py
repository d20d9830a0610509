"""The cases of the benchmarks of runs: what each measures, and the rows that follow, without a run."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from benchmarks import emulator, presets, scaling, throughput
from benchmarks.harness import Case, Options, Report, WrongResult
from benchmarks.measured_run import Throughput, measured_words, plan_of
from shared.errors import ConfigError

WORKERS = ["--preset", "a3c-async", "--actors", "2"]


def options(only: str, *words: str, **more: Any) -> Options:
    defaults = {"only": only, "names": only.split(","), "game": "pong", "seconds": 10.0, "repeats": 2}
    return Options(**{**defaults, "words": list(words), "end_to_end": False, **more})


@pytest.fixture
def report() -> Report:
    return Report("name", "Title.", console=Console(quiet=True), machine={})


def a_run(speed: float = 100.0, **summary: Any) -> Throughput:
    """Figures of a run in which a twentieth of the steps are resets."""
    memory = {
        "shared_bytes": 1e8,
        "private_bytes": {"worker 0": 3e8, "worker 1": 4e8, "scribe": 5e7},
        "device_bytes": {},
        "replay_device_bytes": 0,
    }
    roles = {name: {"busy": busy} for name, busy in {"worker 0": 0.8, "worker 1": 1.0, "evaluator": 0.5}.items()}
    limit = {"sentence": "The workers limit it."}
    return Throughput(
        speed, 0.95 * speed, 8.0, 3, 1.0, 11_000_000_000, {"memory": memory, "roles": roles, "limit": limit} | summary
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Flags of the runs that would be measured; each makes 100 steps/s, and a bare emulator 190 for each process."""
    asked: list[list[str]] = []

    def measure(words: list[str], seconds: float, *, learning: bool = True) -> Throughput:
        asked.append([*words, "learns" if learning else "acts"])
        return a_run()

    for module in (throughput, presets):
        monkeypatch.setattr(module, "measure_run", measure)
        monkeypatch.setattr(module, "measure_at_once", lambda jobs, seconds: [25.0])
    for module in (throughput, scaling):
        monkeypatch.setattr(module, "bare_speed", lambda game, seconds, processes: 190.0 * processes)
        monkeypatch.setattr(module, "usable_cores", lambda: 6)
    return asked


def shares(report: Report) -> dict[str, float | None]:
    return {name: row.ratio for name, row in report.rows.items()}


def test_a_run_is_compared_with_its_two_sides(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed,evaluation,round", "--device", "cpu"), report)
    assert (report.missing, report.wrong) == ({}, {})
    found = {name: row.median for name, row in report.rows.items()}
    assert (found["bare emulator, all cores"], found["learner alone"], found["passes of the updates"]) == (
        1140,
        100,
        100,
    )
    assert shares(report)["actors alone"] == pytest.approx(95 / 1140), "without resets, which it does not count"
    assert (shares(report)["end to end"], report.rows["end to end"].limit) == (1.0, "the two alone")
    assert (found["the two alone"], report.rows["the two alone"].note) == (100, "the smaller")
    assert shares(report)["concurrent, an update every 400 steps"] == 1.0
    assert report.rows["samples a step"].note == "asked: 8"
    acts = [words for words in measured if words[-1] == "acts"]
    assert len(acts) == 2
    assert all("40_000_000" in words for words in acts)
    evaluated = next(words for words in measured if "--eval-every-steps" in words)
    assert evaluated[evaluated.index("--eval-every-steps") + 1] == "2880", "three rounds: more would wait"


def test_alternate_plays_and_learns_in_turn(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed", "--schedule", "alternate", "--device", "cpu"), report)
    assert report.rows["the two alone"].values == (50.0, 50.0)


def test_a_run_of_workers_is_measured_whole_and_without_its_order(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed,evaluation,round", *WORKERS), report)
    names = list(report.rows)
    assert [name for name in names if name.startswith(("actors", "learner", "passes"))] == []
    assert names[-2:] == ["async, as it is", "ordered, as it is"]
    rows = report.rows
    assert (rows["end to end"].limit, rows["end to end"].ratio) == (throughput.BARE, pytest.approx(100 / 1140))
    assert rows["samples a step"].note == "asked: 1"
    assert (rows["busy, worker"].values, rows["private, worker"].values) == ((0.9, 0.9), (400.0, 400.0))
    assert report.notes["limit"] == "What the run says of itself: The workers limit it."


def test_an_evaluator_that_never_worked_is_wrong(
    monkeypatch: pytest.MonkeyPatch, measured: list[list[str]], report: Report
) -> None:
    idle = a_run(roles={"evaluator": {"busy": 0.0}})
    monkeypatch.setattr(throughput, "measure_run", lambda words, seconds: idle)
    throughput.run(options("evaluation", "--device", "cpu"), report)
    assert "never at work" in report.wrong[throughput.EVALUATED]


def test_memory_of_a_gpu_is_told_apart(report: Report) -> None:
    memory = {"device_bytes": {"learner": 8e9, "inference": 1e9}, "replay_device_bytes": 7e9}
    run = a_run(memory=a_run().summary["memory"] | memory)
    plan = plan_of(measured_words("pong", ["--device", "cpu"]))
    report.run([Case("run", lambda found: throughput.whole_run(run, plan, report))], 1)
    found = [row.values for name, row in report.rows.items() if name.startswith("on the GPU")]
    assert found == [(8e3,), (1e3,), (7e3,), (2e3,)]


def test_every_number_of_actors_is_compared_with_the_emulator_and_with_one(
    measured: list[list[str]], report: Report
) -> None:
    scaling.run(options("alone,whole", "--device", "cpu", "--envs", "8"), report)
    assert [name for name in report.rows if name.startswith("bare")] == [f"bare emulator, {n}" for n in (1, 2, 4)]
    assert "lanes" in report.notes, "six cores, four lanes"
    assert report.rows["efficiency of 4 actors"].values == (0.25, 0.25)
    assert shares(report)["actors alone, 2"] == pytest.approx(95 / 380)
    assert shares(report)["whole run, 4"] == 1.0
    assert measured[2][-3:] == ["--actors", "2", "acts"] or "2" in measured[2]
    for words, says in ((WORKERS[:2], "ladder --only async"), (["--actors", "2"], "omit both")):
        with pytest.raises(ConfigError, match=says):
            scaling.run(options("alone", *words), report)


@pytest.mark.parametrize("end_to_end", [False, True])
def test_presets_stand_beside_the_plain_one_and_those_of_workers_have_runs_alone(
    measured: list[list[str]], report: Report, *, end_to_end: bool
) -> None:
    presets.run(options("rainbow,a3c-async", "--device", "cpu", end_to_end=end_to_end), report)
    rows = report.rows
    assert (rows["rainbow, samples"].limit, rows["rainbow, samples"].ratio) == ("nature, samples", 1.0)
    assert rows["rainbow, samples"].median == 32 * rows["rainbow, learner"].median
    assert [name for name in rows if "a3c" in name] == (["a3c-async, run"] if end_to_end else [])
    assert ("nature, run" in rows) == end_to_end
    assert "Without a learner: a3c-async" in report.notes.get("workers", "") or end_to_end


def test_an_emulator_that_stands_still_is_seen() -> None:
    bare = emulator.Bare("pong", seed=1)
    bare.play(0, [1] * 50)
    bare.check()
    bare.steps += 10
    with pytest.raises(WrongResult, match="instead of"):
        bare.check()


def test_a_lane_whose_frames_differ_from_those_of_its_envs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    players = emulator.Players("breakout")
    spent = players.play_block()
    assert (spent[:, 0] > 0).all()
    assert spent[1, 2] == spent[2, 2] > 0
    monkeypatch.setattr(players.envs[1], "step", players.envs[0].step)
    with pytest.raises(WrongResult, match="the lane's slots differ"):
        players.play_block()
