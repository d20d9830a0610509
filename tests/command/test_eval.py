"""`launch.py eval` and `load_agent`, on weights that know nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ringside
from launch import main
from ringside.agents import evaluating
from ringside.records.scores import human_normalized
from shared.config.protocols import PROTOCOLS
from shared.config.sections import ProtocolName
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.checkpoints import random_weights


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of small random weights for Pong."""
    return random_weights(tmp_path / "run")


def test_eval_plays_and_says_how_well(launch: Launch, weights: Path, tmp_path: Path) -> None:
    done = launch("eval", "--load", str(weights), "--episodes", "2", "--device", "cpu", "--json", "a.json")
    assert done.returncode == 0, done.stderr
    *episodes, judged, normalized = done.stdout.splitlines()
    assert judged.startswith("pong, protocol nature, greedy actions and epsilon 0.05, at most 18,000 frames: mean -2")
    assert normalized.startswith("human-normalized")
    first = json.loads((tmp_path / "a.json").read_text())
    found = {re.fullmatch(r"episode (\d) returned (-\d+) after [\d,]+ steps", line).groups() for line in episodes}
    assert found == {(str(i), f"{total:g}") for i, total in enumerate(first["returns"])}
    assert (first["episodes"], len(first["returns"]), first["version"]) == (2, 2, 7)
    assert (first["eval_epsilon"], first["eval_max_frames"]) == (0.05, 18_000)
    assert first["mean"] == np.mean(first["returns"])
    assert first["human_normalized"] == human_normalized("pong", first["mean"])


def test_the_same_seed_plays_the_same(tmp_path: Path) -> None:
    catch = "tests.support.pixel_game:factory"
    weights = random_weights(tmp_path / "run", catch, actions=3)
    found = [
        ringside.evaluate(weights, env=catch, episodes=20, seed=seed, device="cpu")["returns"] for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]


def test_weights_are_judged_by_the_rules_of_their_run(tmp_path: Path) -> None:
    catch = "tests.support.pixel_game:factory"
    weights = random_weights(tmp_path / "run", catch, actions=3, eval_epsilon=0.5, eval_max_frames=40)
    judged = ringside.evaluate(weights, env=catch, episodes=3, device="cpu")
    assert (judged["eval_epsilon"], judged["eval_max_frames"], judged["steps"]) == (0.5, 40, 30)
    given = ringside.evaluate(weights, env=catch, episodes=3, device="cpu", eval_epsilon=0.0, eval_max_frames=20)
    assert (given["eval_epsilon"], given["eval_max_frames"], given["steps"]) == (0.0, 20, 15)


@pytest.mark.parametrize(("protocol", "episodes"), [("dopamine", 3), ("dqn_zoo", 2)])
def test_a_protocol_may_count_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: ProtocolName, episodes: int
) -> None:
    """In the place of 125,000 steps 30, in falls of 12 each."""
    monkeypatch.setitem(PROTOCOLS, protocol, replace(PROTOCOLS[protocol], eval_steps=30))
    catch = "tests.support.pixel_game:factory"
    weights = random_weights(tmp_path / "run", catch, actions=3, protocol=protocol)
    judged = ringside.evaluate(weights, env=catch, device="cpu")
    assert (judged["episodes"], judged["steps"], judged["eval_steps"]) == (episodes, 12 * episodes, 30)
    told = ringside.evaluate(weights, env=catch, device="cpu", episodes=4)
    assert (told["episodes"], told["eval_steps"]) == (4, None)
    assert told["returns"][:episodes] == judged["returns"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--eval-epsilon", "1.5"], "--eval-epsilon 1.5 must lie between 0 and 1"),
        (["--eval-max-frames", "0"], "--eval-max-frames 0 must lie between 1 and 4_000_000"),
        (["--eval-max-frames", "5_000_000"], "--eval-max-frames 5_000_000 must lie between 1 and 4_000_000"),
    ],
)
def test_rules_out_of_their_range_are_refused(
    capsys: pytest.CaptureFixture[str], weights: Path, words: list[str], sentence: str
) -> None:
    assert main(["eval", "--load", str(weights), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_eval_refuses_what_it_cannot_play(refused: Refused, weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "best.safetensors" in refused("eval", "--load", str(weights))


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (
            {"game": "pong", "episodes": 1, "eval_max_frames": 18_000},
            "pong, protocol nature, greedy actions and epsilon 0.05, at most 18,000 frames: mean 1.00 +- 0.00, median "
            "1.00, best 1.00 of 1 episode\n",
        ),
        (
            {"game": "tests.support.pixel_game:factory", "episodes": 2, "eval_max_frames": 108_000},
            "tests.support.pixel_game:factory, greedy actions and epsilon 0.05, at most 27,000 steps: mean 1.00 +- "
            "0.00, median 1.00, best 1.00 of 2 episodes\n",
        ),
        (
            {"game": "pong", "episodes": 1, "eval_max_frames": 18_000, "eval_epsilon": 0.0, "eval_actions": "sample"},
            "pong, protocol nature, sampled actions, at most 18,000 frames: mean 1.00 +- 0.00, median 1.00, best 1.00 "
            "of 1 episode\n",
        ),
    ],
)
def test_the_rules_that_are_printed_are_those_that_were_played_by(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], says: str
) -> None:
    figures = {"protocol": "nature", "eval_epsilon": 0.05, "eval_actions": "greedy", "human_normalized": None}
    figures |= dict.fromkeys(("mean", "median", "best"), 1.0) | {"sd": 0.0}
    monkeypatch.setattr(evaluating, "evaluate", lambda *positional, **options: figures | result)
    assert launch("eval", "--load", "pong").stdout == says


@pytest.mark.parametrize("library", ["msgspec", "torch"])
def test_ctrl_c_while_libraries_load_ends_without_a_traceback(tmp_path: Path, library: str) -> None:
    """Python turns it into an exception in the middle of an import, which some libraries do not survive."""
    (tmp_path / f"{library}.py").write_text("import sys\nprint('loading', flush=True)\nsys.stdin.read()\n")
    process = subprocess.Popen(
        [sys.executable, "launch.py", "eval", "--load", "pong", "--episodes", "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == -signal.SIGINT
        assert process.stderr.read() == ""


def test_a_recurrent_agent_begins_every_episode_with_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []

    class Counting:
        """A network whose state is the number of observations that it has seen."""

        def fresh_state(self) -> np.ndarray:
            return np.zeros((evaluating.ROWS, 2, 1), np.float32)

        def values(self, stacks: np.ndarray, state: np.ndarray) -> np.ndarray:
            seen.append(state[:2, 0, 0].tolist())
            self.next_state = state + 1
            return np.zeros((len(stacks), 3), np.float32)

    network = SimpleNamespace(policy=Counting(), device="cpu", precision="fp32", threads=1)
    network.choose = lambda values, draws, rules: np.zeros(len(values), np.int64)
    monkeypatch.setattr(evaluating, "make_evaluation_policy", lambda *weights, **options: network)
    catch = "tests.support.pixel_game:factory"
    weights = random_weights(tmp_path, catch, actions=3, method="a2c", recurrent=True)
    ringside.evaluate(weights, env=catch, episodes=evaluating.ROWS + 2, device="cpu")
    assert seen == [[step % 12] * 2 for step in range(24)], "falls of 12 steps each"
