"""The proof on a GPU, as far as it needs none: stages fail alone, late commands end, goals are found in metrics."""

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
    QUICK,
    SETTINGS,
    SMALL_RUN,
    STAGES,
    VARIANTS,
    agree,
    prove,
)
from ringside.bench.gpu_proof.prove_training import (
    CURVES_GAMES,
    CURVES_PRESETS,
    CURVES_SECONDS,
    CURVES_WORDS,
    WAYS,
    curves,
    newest_round,
    reached,
    solve,
)
from ringside.bench.gpu_proof.stage import END_SECONDS, Outcome, Stage
from ringside.bench.harness.tables import ROOT
from ringside.report.published_curves import published_curves_of_game
from ringside.tasks.train import configuration
from shared.config.presets import PRESETS
from shared.config.protocols import PROTOCOLS
from shared.machine.facts import cuda_devices
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


def test_a_late_command_and_all_that_it_started_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.bench.gpu_proof.stage.END_SECONDS", 0.2)
    program = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
    assert not stage_at(tmp_path).run(["-c", program], 0.5)
    (fact,) = done_in(tmp_path)
    assert fact["late"]
    assert fact["code"] == -9


def test_a_late_launch_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.bench.gpu_proof.stage.LAUNCH", "-c")
    there = tmp_path / "there"
    program = "import signal; from pathlib import Path; from shared.process.signals import enable_stack_dumps; "
    program += "enable_stack_dumps(); "
    program += f"Path({str(there)!r}).touch(); signal.pause()"
    monkeypatch.setattr(
        "ringside.bench.gpu_proof.stage.time", SimpleNamespace(monotonic=lambda: 30.0 if there.exists() else 0.0)
    )
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


def test_the_round_that_reached_the_goal_is_found(tmp_path: Path) -> None:
    assert reached(tmp_path, 18.0) is None
    means = ((99, 20.0), (100, 17.9), (101, 18.0), (102, 19.0))
    records = [{"kind": "episode", "round": 0, "steps": 1, "return": 21.0}] + [
        {"kind": "round", "round": i, "steps": i, "episodes": episodes, "mean_return_100": mean}
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
    stage = stage_at(tmp_path, "--mps off")
    agree(stage, "--double", {"one": "--actors 1", "two": "--actors 2"})
    assert done_in(tmp_path)[0]["good"] == good


@pytest.mark.parametrize("combination", FAMILY)
def test_the_runs_of_the_family_are_not_refused(combination: str) -> None:
    words = f"{SMALL_RUN} {FAMILY[combination]}".split()
    for variant in FAMILY_VARIANTS:
        ringside.plan(configuration([*words, *VARIANTS[variant].split()]))


@pytest.mark.parametrize("name", QUICK)
def test_the_runs_of_the_quick_preset_are_not_refused(name: str) -> None:
    ringside.plan(
        configuration(["--game", "pong", "--preset", "quick", *QUICK[name].split(), "--replay-size", "20_000"])
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_the_runs_by_setting_are_not_refused(name: str) -> None:
    ringside.plan(configuration(["--game", "breakout", *SETTINGS[name].split(), "--replay-size", "20_000"]))


@pytest.mark.parametrize("name", WAYS)
def test_other_ways_to_solve_pong_are_not_refused(name: str) -> None:
    ringside.plan(configuration(["--game", "pong", "--preset", "quick", *WAYS[name].split()]))


def test_records_and_curve_of_what_was_trained_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run(self: Stage, words: list[str], seconds: float, look: Any = None, run_dir: Path | None = None) -> bool:
        commands.append(words)
        if run_dir is not None:
            run_dir.mkdir()
            values = {"kind": "round", "round": 0, "steps": 1, "episodes": 100, "mean_return_100": 18.0}
            (run_dir / "metrics.jsonl").write_text(json.dumps(values) + "\n")
            assert look()
        return True

    monkeypatch.setattr(Stage, "run", run)
    clock = iter((100.0, 112.5))
    monkeypatch.setattr("ringside.bench.gpu_proof.prove_training.time", SimpleNamespace(monotonic=lambda: next(clock)))
    solve(stage_at(tmp_path, "--mps off"), seed=7)
    train, curve = commands
    assert " ".join(train).startswith("launch.py --plain --device cuda --game pong --preset quick")
    assert "--seed 7 --mps off --run-dir" in " ".join(train)
    assert curve[-1] == str(tmp_path / "pong-7.png")
    assert json.loads((tmp_path / "pong-7-metrics.jsonl").read_text())["mean_return_100"] == 18.0
    assert done_in(tmp_path)[0]["seconds_from_the_command_to_solved"] == 12.5


class Player:
    """Stands for the commands of stage `curves`: a run plays until it is looked at, and a clock goes on meanwhile."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.now, self.commands = out, 0.0, list[list[str]]()
        self.saves, self.means = True, True
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("ringside.bench.gpu_proof.prove_training.time", clock)
        monkeypatch.setattr("ringside.bench.gpu_proof.stage.time", clock)
        monkeypatch.setattr(Stage, "run", lambda _, *words, **more: self.run(*words, **more))

    def call(self, seconds: float) -> list[list[str]]:
        """The commands of one call of the stage that has so many seconds."""
        self.commands = []
        curves(Stage("curves", Outcome(self.out, self.out.with_name("all.tar.gz"), {}), "--mps off", seconds))
        return self.commands

    def run(self, words: list[str], seconds: float, look: Any = None, run_dir: Path | None = None) -> bool:
        self.commands.append(words)
        if run_dir is None:
            return True
        began, before = self.now, newest_round(run_dir)
        while not look():
            self.now += 1.0
        (run_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
        if self.saves:
            (run_dir / "checkpoints" / "checkpoint-00000007.json").touch()
        played = self.now - began + (before["seconds"] if before else 0.0)
        values = {
            "kind": "round",
            "round": 7,
            "steps": 8,
            "seconds": played,
            "mean_return_100": -20.5 if self.means else None,
        }
        (run_dir / "metrics.jsonl").write_text(json.dumps(values) + "\n")
        return True


def trained(commands: list[list[str]]) -> list[str]:
    return [f"{words[-2]} {Path(words[-1]).name}" for words in commands if words[0] == "launch.py"]


def test_curves_train_all_and_another_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    player = Player(out, monkeypatch)
    commands = player.call(1e5)
    runs = [f"{game}-{preset}" for game in CURVES_GAMES for preset in CURVES_PRESETS]
    assert trained(commands) == [f"--run-dir {run}" for run in runs]
    first, picture = commands[:2]
    told = f"launch.py --plain --device cuda --game pong --preset nature {CURVES_WORDS}"
    assert " ".join(first).startswith(told)
    assert first[-4:] == ["--mps", "off", "--run-dir", str(tmp_path / "out-runs" / "prove-gpu" / "pong-nature")]
    assert picture == [
        *("-m", "ringside.report.curve", f"nature={tmp_path / 'out-runs' / 'prove-gpu' / 'pong-nature'}"),
        *("--published", "--out", str(out / "curves-pong.png")),
    ]
    pictures = [words for words in commands if words[0] == "-m"]
    assert [word.partition("=")[0] for word in pictures[3][2:6]] == list(CURVES_PRESETS)
    had = [newest_round(tmp_path / "out-runs" / "prove-gpu" / run) for run in runs]
    shares = [last["seconds"] for last in had if last]
    assert max(shares) - min(shares) < 100, "shares of one size, but for what stopping takes"
    assert 1e5 - player.now < 200, "the time is used"
    commands = player.call(1e5)
    assert sorted(trained(commands)) == sorted(f"--resume {run}" for run in runs)
    assert commands[0][:-1] == ["launch.py", "--plain", "--mps", "off", "--resume"]


def test_with_little_time_those_come_first_that_have_had_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(tmp_path / "out", monkeypatch)
    seconds = 3 * (CURVES_SECONDS + END_SECONDS)
    assert trained(player.call(seconds)) == ["--run-dir pong-nature", "--run-dir pong-rainbow", "--run-dir pong-iqn"]
    left = done_in(tmp_path / "out")[-1]["for_another_call"]
    assert (left[0], len(left)) == ("pong-btr", 13)
    assert trained(player.call(seconds))[:2] == ["--run-dir pong-btr", "--run-dir breakout-nature"]
    assert player.call(CURVES_SECONDS) == []


def test_runs_stay_out_of_the_archive_and_their_records_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(tmp_path / "out", monkeypatch)
    player.call(CURVES_SECONDS + 2.5 * END_SECONDS)
    with tarfile.open(tmp_path / "all.tar.gz") as files:
        assert set(files.getnames()) == {"out", "out/outcome.json", "out/pong-nature-metrics.jsonl"}
    assert done_in(tmp_path / "out")[0]["reached"]["mean_return_100"] == -20.5


def test_a_run_that_saved_nothing_begins_anew_and_is_not_drawn_before_an_episode_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player(tmp_path / "out", monkeypatch)
    player.saves = player.means = False
    assert [words[-2] for words in player.call(CURVES_SECONDS + 2 * END_SECONDS)] == ["--run-dir"]
    # Without records it counts as one that has had no time.
    (tmp_path / "out-runs" / "prove-gpu" / "pong-nature" / "metrics.jsonl").unlink()
    assert trained(player.call(CURVES_SECONDS + 2 * END_SECONDS)) == ["--run-dir pong-nature"]


@pytest.mark.parametrize("preset", CURVES_PRESETS)
@pytest.mark.parametrize("game", CURVES_GAMES)
def test_the_runs_of_the_curves_are_not_refused_and_have_published_ones(game: str, preset: str) -> None:
    words = ["--game", game, "--preset", preset, *CURVES_WORDS.split(), "--replay-size", "40_000"]
    ready = ringside.plan(configuration(words))
    assert {curve.sticky for curve in published_curves_of_game(game)} == {PROTOCOLS[ready.config.play.protocol].sticky}


def test_what_the_processes_of_a_failed_run_wrote_is_kept(tmp_path: Path) -> None:
    stage, run_dir = stage_at(tmp_path), tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "logs" / "learner.log").write_text("Traceback: 18 lines\n")
    assert stage.run(["-c", "pass"], 20, run_dir=run_dir)
    assert "Traceback" not in (tmp_path / "late.log").read_text()
    assert not stage.run(["-c", "raise SystemExit(1)"], 20, run_dir=run_dir)
    assert "--- learner.log\nTraceback: 18 lines" in (tmp_path / "late.log").read_text()


def test_presets_of_the_stages_are_all_but_the_plain_one() -> None:
    assert {"nature", *FEW_KERNELS.split(","), *MANY_KERNELS.split(",")} == set(PRESETS)


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a GPU here, and everything would be measured")
def test_without_a_gpu_it_refuses(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ringside.bench.gpu_proof.prove_gpu", "--out", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "no GPU here" in done.stderr) == (2, True)
    done = subprocess.run([*words, "latent"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "there is no stage latent" in done.stderr
    done = subprocess.run(
        [*words, "--runs", str(tmp_path / "runs")], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "would be packed" in done.stderr) == (2, True)


def test_the_words_of_the_program_name_every_stage_in_order() -> None:
    said = [line.split()[0] for line in (prove_gpu.__doc__ or "").splitlines() if re.match(r"  \S+ {3,}", line)]
    assert said == list(STAGES)
