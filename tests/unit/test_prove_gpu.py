"""The proof on a GPU, as far as it needs none: stages fail alone, late commands end, goals are found in metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ringside
from benchmarks import prove_gpu
from benchmarks.prove_gpu import (
    FAMILY,
    FAMILY_VARIANTS,
    FEW_KERNELS,
    MANY_KERNELS,
    SMALL_RUN,
    STAGES,
    VARIANTS,
    Stage,
    agree,
    prove,
    reached,
)
from benchmarks.report import ROOT
from shared.machine import cuda_devices
from shared.presets import PRESETS
from tasks.train import configuration


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stage: Stage) -> None:
        stage.run(["-c", "print('said'); raise SystemExit(3)"], 20)
        json.loads((stage.out / "missing.json").read_text())

    def good(stage: Stage) -> None:
        assert stage.run(["-c", "pass"], 20)

    monkeypatch.setattr(prove_gpu, "STAGES", {"broken": broken, "good": good})
    assert not prove(["broken", "good"], tmp_path / "out")
    done = json.loads((tmp_path / "out" / "outcome.json").read_text())["done"]
    assert [(fact["stage"], fact["good"]) for fact in done] == [("broken", False)] * 2 + [("good", True)]
    assert done[0]["code"] == 3
    assert "FileNotFoundError" in done[1]["error"]
    assert "said" in (tmp_path / "out" / "broken.log").read_text()
    assert prove(["good"], tmp_path / "out")


def test_a_late_command_and_all_that_it_started_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove_gpu, "END_SECONDS", 0.2)
    program = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
    stage = Stage("late", tmp_path)
    assert not stage.run(["-c", program], 0.5)
    assert stage.outcome[0]["late"]
    assert stage.outcome[0]["code"] == -9


def test_a_command_ends_when_what_was_looked_for_is_there(tmp_path: Path) -> None:
    stage, found = Stage("solve", tmp_path), tmp_path / "found"
    program = f"import pathlib, signal; pathlib.Path({str(found)!r}).touch(); signal.pause()"
    assert stage.run(["-c", program], 60, found.exists)
    assert not stage.outcome[0]["late"]


def test_the_round_that_reached_the_goal_is_found(tmp_path: Path) -> None:
    assert reached(tmp_path, 18.0) is None
    means = ((99, 20.0), (100, 17.9), (101, 18.0), (102, 19.0))
    records = [{"kind": "episode", "round": 0, "return": 21.0}] + [
        {"kind": "round", "round": i, "episodes": episodes, "mean_return_100": mean}
        for i, (episodes, mean) in enumerate(means)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    found = reached(tmp_path, 18.0)
    assert found is not None
    assert found["episodes"] == 101
    assert reached(tmp_path, 20.0) is None


@pytest.mark.parametrize(("weights", "good"), [("11", True), ("12", False), ("1", False)])
def test_runs_agree_when_all_have_ended_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str, good: bool
) -> None:
    """A run without weights here is one that did not end well."""
    left = list(weights)

    def launch(self: Stage, words: str, seconds: float, run_dir: Path) -> bool:
        if not left:
            return False
        assert " --mps off --actors " in words
        assert words.endswith(f" --run-dir {run_dir}")
        run_dir.mkdir()
        (run_dir / "summary.json").write_text(json.dumps({"weights_sha256": left.pop()}))
        return True

    monkeypatch.setattr(Stage, "launch", launch)
    stage = Stage("family", tmp_path, "--mps off")
    agree(stage, "--double", {"one": "--actors 1", "two": "--actors 2"})
    assert stage.outcome[0]["good"] == good


@pytest.mark.parametrize("combination", FAMILY)
def test_the_runs_of_the_family_are_not_refused(combination: str) -> None:
    words = f"{SMALL_RUN} {FAMILY[combination]}".split()
    for variant in FAMILY_VARIANTS:
        ringside.plan(configuration([*words, *VARIANTS[variant].split()]))


def test_what_the_processes_of_a_failed_run_wrote_is_kept(tmp_path: Path) -> None:
    stage, run_dir = Stage("exact", tmp_path), tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "logs" / "learner.log").write_text("Traceback: 18 lines\n")
    assert stage.run(["-c", "pass"], 20, run_dir=run_dir)
    assert "Traceback" not in (tmp_path / "exact.log").read_text()
    assert not stage.run(["-c", "raise SystemExit(1)"], 20, run_dir=run_dir)
    assert "--- learner.log\nTraceback: 18 lines" in (tmp_path / "exact.log").read_text()


def test_presets_of_the_stages_are_all_but_the_plain_one() -> None:
    assert {"nature", *FEW_KERNELS.split(","), *MANY_KERNELS.split(",")} == set(PRESETS)


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a GPU here, and everything would be measured")
def test_without_a_gpu_it_refuses(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.prove_gpu", "--out", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "no GPU here" in done.stderr) == (2, True)
    done = subprocess.run([*words, "latent"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "there is no stage latent" in done.stderr
    assert set(STAGES) == {
        "latency",
        "learner",
        "exact",
        "family",
        "presets",
        "large",
        "limits",
        "breakout",
        "pong",
        "scaling",
        "solve-1",
        "solve-2",
        "solve-3",
    }
