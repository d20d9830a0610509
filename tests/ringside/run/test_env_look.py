"""The look at a user's env before a run: sentences for faults, and nothing left behind."""

import itertools
import signal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

import ringside
from actors.env import EnvError
from actors.make_env import require_no_game
from ringside.run import checks, planning
from shared.errors import ConfigError
from shared.frame_shape import DEFAULT_FRAMES
from tests.conftest import Refused
from tests.support.configurations import settled
from tests.support.runs import child, finish, start, wait_until

ODD = "tests.support.odd_envs:factory"


def look(wrong: str) -> checks.EnvLook:
    """Look at the odd env with a fault. No process is left, however that ends."""
    before = set(psutil.Process().children(recursive=True))
    try:
        return checks.look_at(f"{ODD}@wrong={wrong}", DEFAULT_FRAMES)
    finally:
        left = set(psutil.Process().children(recursive=True)) - before
        assert not [process for process in left if "resource_tracker" not in " ".join(process.cmdline())]


def test_a_call_looks_at_code_that_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.run.training.plan", Mock(side_effect=ConfigError))
    look("nothing")
    with pytest.raises(ConfigError):
        ringside.train(game="pong")
    assert checks.look_at.cache_info().currsize == 0


FAULTS = [
    ("raises", r"at tick 17: KeyError: 'no\\nsuch key' \(odd_envs.py, line \d+\)"),
    ("ends", r"ended with code 7 in step\(\): its code must not end the program"),
    ("crashes", r"was killed by SIGSEGV in step\(\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), FAULTS)
def test_a_fault_of_an_env_is_a_sentence(wrong: str, sentence: str) -> None:
    with pytest.raises(EnvError, match=sentence) as error:
        look(wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("wrong", "repeats"), [("nothing", True), ("seed", False), ("threads", True)])
def test_a_look_finds_what_does_not_repeat(wrong: str, repeats: bool) -> None:
    assert look(wrong) == checks.EnvLook(("left", "stay", "right"), repeats, None)


def test_an_env_that_does_not_close_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    call = property(lambda trial: calls[-1], lambda trial, name: calls.append(name))
    monkeypatch.setattr(checks._Trial, "_call", call, raising=False)
    looks = itertools.count()  # the clock moves only after ten looks in vain
    late = SimpleNamespace(monotonic=lambda: 61.0 * (calls[-1:] == ["close()"] and next(looks) > 10))
    monkeypatch.setattr(checks, "time", late)
    with pytest.raises(EnvError, match=r"--env .*@wrong=close did not return from close\(\) within 60 s\."):
        look("close")


def test_a_hanging_env_is_told_and_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(checks, "NOTE_SECONDS", 1.5)
    monkeypatch.setattr(checks, "LIMIT_SECONDS", 2.0)
    with pytest.raises(EnvError, match="did not return from its import, or its factory within 2 s"):
        look("hangs")
    assert capsys.readouterr().err.count("before the start") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_look_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path / "run", env=f"{ODD}@wrong=hangs")
    wait_until(process, lambda: child(process, "look at the env") is not None, every=0.05)
    process.send_signal(number)
    assert "Traceback" not in finish(process, code=130 if number == signal.SIGINT else -number)
    assert not (tmp_path / "run").exists()


def test_an_env_that_fails_is_refused_before_anything_is_begun(refused: Refused, tmp_path: Path) -> None:
    said = refused("--env", f"{ODD}@wrong=raises", "--preset", "quick", "--run-dir", str(tmp_path / "run"))
    assert "failed in step() of env 0 at tick 17: KeyError" in said
    assert not (tmp_path / "run").exists()


def test_an_env_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look("nothing")
    monkeypatch.setattr(checks, "_Trial", None)
    assert look("nothing") is found


def test_one_instance_a_process_needs_as_many_actors_as_envs() -> None:
    """Several envs of a process are refused with a hint."""
    env = f"{ODD}@wrong=second"
    shared = settled(env=env, envs=4, lane_envs=2, actors=2, inference_batch=4)
    with pytest.raises(ConfigError, match=r"RuntimeError: The device is taken.* pass --lane-envs 1, as many --actors"):
        planning.check(shared)
    assert planning.check(shared.with_settings(lane_envs=1, actors=4)).actions == 3


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "Breakout", "Pong-v4", "BreakoutDeterministic-v4"])
def test_ids_of_games_are_refused(name: str) -> None:
    game = "pong" if name.startswith("Pong") else "breakout"
    with pytest.raises(ConfigError, match=f"--env {name} is a game by other rules .*: pass --game {game}"):
        planning.check(settled(env=name))
    for other in ("ALE/Pong-v5", "mine:factory@frameskip=4", "CartPole-v1", "mine:Pong-v4"):
        require_no_game(other)


def test_the_start_says_that_an_env_does_not_repeat_itself(tmp_path: Path) -> None:
    def doubts(env: str) -> list[str]:
        answers = checks.before_start(planning.check(settled(env=env, run_dir=tmp_path / "run")), continues=False)
        return [answer.sentence for answer in answers if answer.name == "env" and answer.color == "yellow"]

    (sentence,) = doubts(f"{ODD}@wrong=seed")
    assert sentence.startswith(f"{ODD}@wrong=seed does not repeat itself after reset(seed=...)")
    assert not doubts(f"{ODD}@wrong=nothing")
