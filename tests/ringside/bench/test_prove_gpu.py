"""The proof on a GPU, as far as it needs none: stages fail alone, and late commands end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import ringside
from ringside.bench.gpu_proof import prove_gpu
from ringside.bench.gpu_proof.prove_gpu import (
    FAMILY,
    FAMILY_VARIANTS,
    FEW_KERNELS,
    MANY_KERNELS,
    ON_POLICY,
    QUICK,
    SETTINGS,
    SMALL_RUN,
    STAGES,
    VARIANTS,
    agree,
    prove,
    solve,
)
from ringside.bench.gpu_proof.stage import Outcome, Stage
from ringside.bench.ladder.solve import Learned
from ringside.tasks.train import configuration
from shared.config.presets import PRESETS
from shared.machine.facts import cuda_devices
from shared.root import ROOT
from tests.support.waiting import until


def stage_at(out: Path, more: str = "") -> Stage:
    return Stage("late", Outcome(out, None, {}), more)


def done_in(out: Path) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = json.loads((out / "outcome.json").read_text())["done"]
    return done


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stage: Stage) -> None:
        stage.run(["-c", "print('said'); raise SystemExit(3)"], 20)
        json.loads((stage.out / "missing.json").read_text())

    def good(stage: Stage) -> None:
        assert stage.run(["-c", "pass"], 20)

    monkeypatch.setattr(prove_gpu, "STAGES", {"broken": broken, "good": good})
    out, archive = tmp_path / "out", tmp_path / "all.tar.gz"
    assert not prove(["broken", "good"], Outcome(out, archive, {"commit": "abc"}), "", 1e9)
    done = done_in(out)
    assert [(fact["stage"], fact["good"]) for fact in done] == [("broken", False)] * 2 + [("good", True)]
    assert done[0]["code"] == 3
    assert "FileNotFoundError" in done[1]["error"]
    assert "said" in (out / "broken.log").read_text()
    # What a directory holds is gone on with, and all of it is in the archive.
    assert prove(["good"], Outcome(out, archive, {"commit": "def"}), "", 1e9)
    assert [fact["stage"] for fact in done_in(out)] == ["broken", "broken", "good", "good"]
    with tarfile.open(archive) as files:
        assert set(files.getnames()) == {"out", "out/broken.log", "out/good.log", "out/outcome.json"}
        outcome = files.extractfile("out/outcome.json")
        assert outcome is not None
        assert json.load(outcome) == json.loads((out / "outcome.json").read_text()) | {"commit": "def"}


def test_a_stage_without_time_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove_gpu, "STAGES", {"one": lambda stage: stage.run(["-c", "pass"], 20)})
    assert not prove(["one"], Outcome(tmp_path, None, {}), "", 100.0)
    assert "Left out" in done_in(tmp_path)[0]["error"]
    assert prove(["one"], Outcome(tmp_path, None, {}), "", 140.0)


@pytest.mark.parametrize(("missing", "wrong"), [({"a": "no GPU"}, {}), ({}, {"a": "1 is not 2"}), ({}, {})])
def test_a_benchmark_that_measured_nothing_is_not_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: dict[str, str], wrong: dict[str, str]
) -> None:
    def launch(self: Stage, words: str, seconds: float, run_dir: Path | None = None) -> bool:
        assert words == f"bench limits --json {tmp_path / 'a.json'} -- --envs 8"
        (tmp_path / "a.json").write_text(json.dumps({"missing": missing, "wrong": wrong}))
        return True

    monkeypatch.setattr(Stage, "launch", launch)
    stage = stage_at(tmp_path)
    assert stage.bench("limits", "a.json", 20, "-- --envs 8") == (not missing and not wrong)
    monkeypatch.setattr(Stage, "launch", lambda *_: False)  # and leaves the file of a former one
    assert not stage.bench("limits", "a.json", 20)


def _late_once(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have half a minute pass when a file is there."""
    monkeypatch.setattr(
        "ringside.bench.gpu_proof.stage.time", SimpleNamespace(monotonic=lambda: 30.0 if there.exists() else 0.0)
    )


def test_a_late_command_and_all_that_it_started_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.bench.gpu_proof.stage.END_SECONDS", 0.2)
    there = tmp_path / "there"
    program = "import pathlib, signal; signal.signal(15, signal.SIG_IGN); "
    program += f"pathlib.Path({str(there)!r}).touch(); signal.pause()"
    _late_once(there, monkeypatch)
    assert not stage_at(tmp_path).run(["-c", program], 20.0)
    (fact,) = done_in(tmp_path)
    assert fact["late"]
    assert fact["code"] == -9


def test_a_late_launch_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.bench.gpu_proof.stage.LAUNCH", "-c")
    there = tmp_path / "there"
    program = "import signal; from pathlib import Path; from shared.process.signals import enable_stack_dumps; "
    program += "enable_stack_dumps(); "
    program += f"Path({str(there)!r}).touch(); signal.pause()"
    _late_once(there, monkeypatch)
    assert not stage_at(tmp_path).run(["-c", program], 20.0)
    assert 'File "<string>", line 1 in <module>' in (tmp_path / "late.log").read_text()


def test_a_command_ends_with_the_proof(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    marking = f"import os, pathlib, signal; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); signal.pause()"
    program = (
        "from pathlib import Path; from ringside.bench.gpu_proof.stage import Outcome, Stage; "
        f"Stage('s', Outcome(Path({str(tmp_path / 'out')!r}), None, {{}})).run(['-c', {marking!r}], 60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as process:
        until(lambda: mark.exists() and mark.read_text())
        command = psutil.Process(int(mark.read_text()))
        process.kill()
    psutil.wait_procs([command], timeout=20)
    assert not command.is_running() or command.status() == psutil.STATUS_ZOMBIE


def test_a_command_ends_when_what_was_looked_for_is_there(tmp_path: Path) -> None:
    found = tmp_path / "found"
    program = f"import pathlib, signal; pathlib.Path({str(found)!r}).touch(); signal.pause()"
    assert stage_at(tmp_path).run(["-c", program], 60, found.exists)
    assert not done_in(tmp_path)[0]["late"]


@pytest.mark.parametrize(("weights", "good"), [("11", True), ("12", False), ("1", False)])
def test_runs_agree_when_all_have_ended_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str, good: bool
) -> None:
    """A run without weights here is one that did not end well."""
    left = list(weights)

    def launch(self: Stage, words: str, seconds: float, run_dir: Path) -> bool:
        if not left:
            return False
        assert " --pin off --actors " in words
        assert words.endswith(f" --run-dir {run_dir}")
        run_dir.mkdir()
        (run_dir / "summary.json").write_text(json.dumps({"weights_sha256": left.pop()}))
        return True

    monkeypatch.setattr(Stage, "launch", launch)
    stage = stage_at(tmp_path, "--pin off")
    agree(stage, "--double", {"one": "--actors 1", "two": "--actors 2"})
    assert done_in(tmp_path)[0]["good"] == good


RUNS = [
    *(f"{SMALL_RUN} {words} {VARIANTS[variant]}" for words in FAMILY.values() for variant in FAMILY_VARIANTS),
    *(f"--game pong --preset quick {words} --replay-size 20_000" for words in QUICK.values()),
    *(f"--game breakout {words} --replay-size 20_000" for words in SETTINGS.values()),
]


@pytest.mark.parametrize("words", RUNS)
def test_the_runs_of_the_stages_are_not_refused(words: str) -> None:
    ringside.plan(configuration(words.split()))


@pytest.mark.parametrize(("mean", "good"), [(18.0, True), (17.9, False), (None, False)])
def test_a_solved_game_is_noted_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mean: float | None, good: bool
) -> None:
    def solve_run(words: list[str], bound: float, minutes: float) -> Learned:
        assert " ".join(words).endswith("--seed 7 --pin off")
        return Learned(112.5, 9_000, mean)

    monkeypatch.setattr(prove_gpu, "solve_run", solve_run)
    solve(stage_at(tmp_path, "--pin off"), seed=7)
    (fact,) = done_in(tmp_path)
    assert (fact["seconds"], fact["mean_return"], fact["good"]) == (112.5, mean, good)


def test_the_logs_of_a_failed_run_are_kept(tmp_path: Path) -> None:
    stage, run_dir = stage_at(tmp_path), tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "logs" / "learner.log").write_text("Traceback: 18 lines\n")
    assert stage.run(["-c", "pass"], 20, run_dir=run_dir)
    assert "Traceback" not in (tmp_path / "late.log").read_text()
    assert not stage.run(["-c", "raise SystemExit(1)"], 20, run_dir=run_dir)
    assert "--- learner.log\nTraceback: 18 lines" in (tmp_path / "late.log").read_text()


def test_presets_of_the_stages_are_all_but_the_plain_one() -> None:
    listed = ",".join(("nature", FEW_KERNELS, MANY_KERNELS, ON_POLICY)).split(",")
    on_a_gpu = [name for name, preset in PRESETS.items() if preset.learn.schedule not in ("ordered", "async")]
    assert sorted(listed) == sorted(on_a_gpu)


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a GPU here, and everything would be measured")
def test_without_a_gpu_it_refuses(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ringside.bench.gpu_proof.prove_gpu", "--out", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "no GPU here" in done.stderr) == (2, True)
    done = subprocess.run([*words, "latent"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "there is no stage latent" in done.stderr
    words += ["--archive", str(tmp_path / "all.tar.gz")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "would be packed" in done.stderr) == (2, True)


def test_the_words_of_the_program_name_every_stage_in_order() -> None:
    said = [line.split()[0] for line in (prove_gpu.__doc__ or "").splitlines() if re.match(r"  \S+ {3,}", line)]
    assert said == list(STAGES)
