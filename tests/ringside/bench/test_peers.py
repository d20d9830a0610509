"""Other systems beside Ringside: what cannot be installed is named, what they say is checked, all of it takes turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ringside.bench import bench_command
from ringside.bench.harness import programs
from ringside.bench.harness.interleaved import Contender, measure_interleaved, names_in_list
from ringside.bench.harness.programs import json_result
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.peers import peer_comparison, peer_environment
from ringside.bench.peers.learning_jobs import JOBS, Job, Peer, peer_speed
from ringside.bench.peers.peer_environment import Environment
from shared.errors import ConfigError

REFUSAL = "pip install torch failed: ERROR: No matching distribution found for torch"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be installed."""

    def refuse(self: Environment, *packages: str) -> None:
        raise CannotRun(REFUSAL)

    monkeypatch.setattr(Environment, "install", refuse)


@pytest.mark.usefixtures("offline")
def test_a_peer_that_cannot_be_installed_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    assert (
        bench_command.run(
            bench_command.find_benchmark("peers"), peer_comparison.Options(json=file), ["--json", str(file)]
        )
        == 1
    )
    written = json.loads(file.read_text())
    assert written["rows"] == [], "without a peer there is nothing to compare Ringside with"
    vectors = ("AtariVectorEnv", "SyncVectorEnv", "AsyncVectorEnv")
    assert written["missing"].keys() == {
        *(f"Stable-Baselines3 {each}" for each in ("DQN", "PPO", "A2C")),
        "PFRL DQN",
        "CleanRL dqn_atari",
        "CleanRL ppo_atari",
        *vectors,
    }
    for name in ("CleanRL dqn_atari", "CleanRL ppo_atari"):
        assert "pass --cleanrl" in written["missing"].pop(name)
    assert set(written["missing"].values()) == {REFUSAL}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (peer_comparison.Options(only="sb4"), "--only sb4 is not one of sb3, pfrl, cleanrl-dqn, sb3-ppo"),
        (peer_comparison.Options(only="sb3,ringside"), "--only ringside"),
        (peer_comparison.Options(game="brakout"), "no game 'brakout'"),
    ],
)
def test_impossible_options(options: peer_comparison.Options, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        peer_comparison.measure(options, Report("peers", "title"))


def fake_python(directory: Path, script: str) -> Path:
    """An interpreter with pip that does what a shell script says."""
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\n{script}\n')
    python.chmod(0o755)
    return directory


def test_pip_is_quoted_and_not_asked_again(tmp_path: Path) -> None:
    script = f"echo asked >> {tmp_path}/asked; echo 'ERROR: No network' >&2; echo 'notice: a new pip' >&2; exit 1"
    environment = Environment(fake_python(tmp_path / "venv", script))
    for _ in range(2):
        with pytest.raises(CannotRun, match=r"torch==.* failed: ERROR: No network$"):
            environment.install("stable-baselines3")
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_torch_comes_first_and_alone(tmp_path: Path) -> None:
    environment = Environment(fake_python(tmp_path / "venv", f'echo "$@" >> {tmp_path}/asked'))
    environment.install("pfrl==0.4.0", "ale-py")
    environment.install("gymnasium")
    first, second, third = (line.split()[7:] for line in (tmp_path / "asked").read_text().splitlines())
    assert [package.partition("==")[0] for package in first] == ["torch"]
    assert second == ["pfrl==0.4.0", "ale-py"]
    assert third == ["gymnasium"]


def test_an_environment_whose_making_was_interrupted_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    environment = Environment(tmp_path / "venv")
    assert not environment._has_pip()
    monkeypatch.setattr(Environment, "_pip", lambda *_: None)
    environment.install("ale-py")
    assert environment._has_pip()


def test_an_environment_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_environment.sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(CannotRun, match=r"nowhere cannot be started: No such file or directory\."):
        Environment(tmp_path / "venv").install("ale-py")


def test_the_last_line_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "ROOT", Path(os.sep))
    assert json_result(["echo", 'chatter\n{"steps": 3}'], 10.0) == {"steps": 3}
    with pytest.raises(WrongResult, match="printed no result"):
        json_result(["echo", "chatter"], 10.0)
    with pytest.raises(CannotRun, match=r"did not end within 0 s\."):
        json_result(["sleep", "10"], 0.1)


class Telling(Environment):
    """An environment whose peers say what they are told to say."""

    def __init__(self, **says: Any) -> None:
        self.says = says

    def run_script(self, script: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
        return self.says


DONE = {"package": "sb3 2", "steps": 400, "updates": 100, "seconds": 4.0, "threads": 2}
SEEN = {"package": "ale-py 0", "steps": 320, "seconds": 4.0, "looks": 10, "seen": 10}


def test_a_peer_that_learns_is_checked() -> None:
    dqn = JOBS[0]
    sb3 = dqn.peers["sb3"]
    assert peer_speed(Telling(**DONE), dqn, sb3, ["sb3"], 2, 400) == 100.0
    for wrong in ({"updates": 98}, {"updates": 102}, {"steps": 399}, {"threads": 1}):
        with pytest.raises(WrongResult, match="were asked for"):
            peer_speed(Telling(**(DONE | wrong)), dqn, sb3, ["sb3"], 2, 400)


def test_a_peer_that_plays_is_checked() -> None:
    assert peer_comparison._peer_envs(Telling(**SEEN), "ale", "pong", 32, 2, 4.0) == 80.0
    for wrong in ({"seen": 9}, {"steps": 321}, {"looks": 0, "seen": 0}):
        with pytest.raises(WrongResult, match="played"):
            peer_comparison._peer_envs(Telling(**(SEEN | wrong)), "ale", "pong", 32, 2, 4.0)


def test_ours_is_compared_with_the_better_setting_of_each_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {("sb3", 1): 50.0, ("sb3", 2): 60.0, ("sb3", 3): 100.0}
    speeds |= {("pfrl", 1): 60.0, ("pfrl", 2): 80.0, ("pfrl", 3): 40.0}
    speeds |= {("sb3-ppo", 1): 30.0, ("sb3-ppo", 2): 20.0, ("sb3-ppo", 3): 10.0}

    def peer_speed(
        environment: Environment, job: Job, peer: Peer, words: Sequence[str], threads: int, least: int
    ) -> float:
        return speeds[words[0], threads] * (2.0 if "--env-processes" in words else 1.0)

    monkeypatch.setattr(Environment, "install", lambda self, *packages: None)
    monkeypatch.setattr(peer_comparison.facts, "usable_cores", lambda *_: 3)
    monkeypatch.setattr(peer_comparison, "peer_speed", peer_speed)
    monkeypatch.setattr(peer_comparison, "_ringside", lambda options, game, words: 200.0 if "fp32" in words else 400.0)
    report = Report("peers", "title")
    peer_comparison.measure(peer_comparison.Options(only="sb3,pfrl,sb3-ppo", repeats=2), report)
    ratios = {row.name: row.values for row in report.rows if row.unit == "times"}
    assert ratios == {
        "Ringside : Stable-Baselines3 DQN, 3 threads": (4.0, 4.0),
        "Ringside, fp32 : Stable-Baselines3 DQN, 3 threads": (2.0, 2.0),
        "Ringside : PFRL DQN, 2 threads": (5.0, 5.0),
        "Ringside, fp32 : PFRL DQN, 2 threads": (2.5, 2.5),
        "Ringside : Stable-Baselines3 PPO, 1 thread, envs in processes": (20 / 3, 20 / 3),
        "Ringside, fp32 : Stable-Baselines3 PPO, 1 thread, envs in processes": (10 / 3, 10 / 3),
    }


def test_contenders_take_turns_and_who_fails_is_left_out() -> None:
    asked = []

    def measure(name: str, fails_at: int) -> float:
        asked.append(name)
        if asked.count(name) == fails_at:
            raise (CannotRun if name == "b" else WrongResult)(f"{name} failed.")
        return float(asked.count(name))

    contenders = [Contender(name, lambda n=name, f=at: measure(n, f)) for name, at in (("a", 0), ("b", 2), ("c", 1))]
    report = Report("peers", "title")
    assert measure_interleaved(report, contenders, 3) == {"a": [1.0, 2.0, 3.0]}
    assert asked == ["a", "b", "c", "a", "b", "a"]
    assert report.missing == {"b": "b failed."}
    assert report.wrong == {"c": "c failed."}


def test_names_are_chosen_in_the_known_order() -> None:
    assert names_in_list("all", ["a", "b"], "--only") == ["a", "b"]
    assert names_in_list("b, a", ["a", "b", "c"], "--only") == ["a", "b"]
    with pytest.raises(ConfigError, match="--only d is not one of a, b"):
        names_in_list("a,d", ["a", "b"], "--only")


CLEANRL_PPO = """
import gymnasium, torch
from gymnasium.wrappers import FrameStack, GrayScaleObservation

envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
envs.reset(seed=1)
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
for _ in range(10):
    for _ in range(128):
        envs.step(envs.action_space.sample())
    for _ in range(16):
        optimizer.step()
"""


def test_whole_rollouts_of_an_unchanged_file_of_cleanrl_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "clone" / "cleanrl" / "ppo_atari.py"
    file.parent.mkdir(parents=True)
    file.write_text(CLEANRL_PPO)
    script = Path(peer_environment.__file__).with_name("peer_cleanrl.py")
    words = ["cleanrl-ppo", "--clone", str(tmp_path / "clone"), "--threads", "1", "--steps", "2000"]
    result = json_result([sys.executable, "-P", str(script), *words], 100.0)
    assert (result["steps"], result["updates"], result["threads"]) == (2_048, 32, 1)
    assert result["seconds"] > 0
