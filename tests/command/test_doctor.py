"""`launch.py doctor` as a user types it."""

import json
import os
from pathlib import Path

import pytest

import ringside
from ringside.command import doctor as examination
from ringside.command.train import configuration
from ringside.run.checks import Check
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from tests.conftest import Launch

SMALL = ("--game", "pong", "--network", "small", "--device", "cpu", "--replay-size", "20_000")
CATCH = "tests.support.pixel_game:factory"
NAMES = ["packages", "GPU", "settings", "processor", "cores", "memory", "open files", "processes"]
NAMES += ["run directory", "disk space", "self-test"]


@pytest.mark.timeout(420)
def test_a_good_machine(launched: Launch, tmp_path: Path) -> None:
    done = launched("doctor", *SMALL, "--actors", "1", "--json", "found.json", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["name"] for each in found["checks"]] == NAMES
    assert found["color"] in ("green", "yellow")
    assert "4 rounds committed" in found["checks"][-1]["found"]
    for name in NAMES:
        assert name in done.stdout
    assert os.listdir(tmp_path) == ["found.json"]  # no run directory was made


PLANS = [
    ["--env", CATCH, "--preset", "quick"],
    ["--env", CATCH, "--preset", "ppo-quick", "--frame-size", "64"],
    ["--env", CATCH, "--preset", "a3c"],
    ["--game", "pong", "--preset", "quick", "--frame-size", "64", "--frame-stack", "2"],
    ["--game", "pong", "--preset", "quick", "--schedule", "free", "--eval-every-steps", "100_000"],
    ["--game", "pong", "--preset", "a3c-async", "--recurrent"],
    ["--game", "pong", "--preset", "a2c", "--schedule", "alternate"],
    ["--preset", "quick", "--value-rescaling"],
    *(["--preset", preset] for preset in PRESETS),
]


@pytest.mark.parametrize("words", PLANS)
def test_the_small_run_plays_and_learns_as_the_plan(words: list[str]) -> None:
    config = configuration([*words, "--device", "cpu"])
    if not (config.play.workers or method_declaration(config.algorithm.method).on_policy):
        config = config.with_settings(replay_size=100_000, learning_starts=10_000)
    plan = ringside.plan(config)
    small = examination.small_plan(plan)
    assert small.network == plan.network, "the source of the initial weights"
    assert (small.config.play.played, small.config.play.frames) == (plan.config.play.played, plan.config.play.frames)
    assert (small.config.learn.schedule, small.config.algorithm) == (plan.config.learn.schedule, plan.config.algorithm)
    learns_each_round = config.learn.schedule == "alternate" and not plan.method.on_policy
    assert small.run_schedule.rounds == examination.ROUNDS * (10 if learns_each_round else 1)


@pytest.mark.timeout(420)
def test_an_env_has_its_self_test() -> None:
    words = ["--env", CATCH, "--preset", "quick", "--network", "small", "--frame-size", "64", "--device", "cpu"]
    answer = examination.self_test(ringside.plan(configuration(words)))
    assert answer.color == "green", answer.found


def test_a_small_run_that_fails_is_red_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    monkeypatch.setattr(examination, "LAUNCHER", program)
    plan = ringside.plan(configuration(["--game", "pong", "--preset", "quick", "--device", "cpu"]))
    for code, seconds, says in (
        ("import sys; sys.exit('No luck.')", 60.0, "A small run ended with code 1: No luck."),
        ("import time; time.sleep(60)", 0.5, "A small run did not end within 0 s."),
    ):
        program.write_text(code)
        monkeypatch.setattr(examination, "SECONDS", seconds)
        answer = examination.self_test(plan)
        assert (answer.color, answer.found) == ("red", says)


def test_a_red_check_sets_the_exit_code(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "self_test", lambda plan: Check("self-test", "green", "It works."))
    monkeypatch.setattr("shared.machine.facts.cuda_devices", lambda: 0)
    monkeypatch.setenv("COLUMNS", "80")
    sizes = ("--replay-size", "100_000_000_000", "--total-steps", "1_000_000_000_000", "--precision", "tf32")
    gpus = ("--device", "cuda:98", "--learner-ranks", "2", "--acting-device", "cuda:97")
    done = launch("doctor", "--game", "pong", *gpus, *sizes, "--json", "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["name"] for each in found["checks"] if each["color"] == "red"] == ["GPU", "memory"]
    assert (done.returncode, found["color"], "fix the red checks" in done.stdout) == (1, "red", True)
    table = done.stdout[: done.stdout.index("A run would fail")]
    assert max(map(len, table.splitlines())) <= 80
