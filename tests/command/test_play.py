"""The commands `play` and `eval` as a user types them, on weights that know nothing."""

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

import av
import numpy as np
import pytest
from PIL import Image

import ringside
from actors.env import Outcome
from actors.evaluation import Episode
from ringside.agents import evaluating
from ringside.records.scores import human_normalized
from shared.config.protocols import PROTOCOLS
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.checkpoints import random_weights
from tests.support.pixel_game import Catch

CATCH = "tests.support.pixel_game:factory"


@pytest.fixture
def catch(tmp_path: Path) -> Path:
    """Weights that know nothing, of a game of 12 steps."""
    return random_weights(tmp_path / "run", CATCH, actions=3)


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def frames_in(path: Path) -> int:
    with av.open(str(path)) as file:
        return sum(1 for _ in file.decode(video=0))


def test_a_video_of_a_game(launched: Launch, launch: Launch, tmp_path: Path) -> None:
    weights = random_weights(tmp_path / "run")
    words = ("play", "--load", str(weights), "--device", "cpu", "--seconds", "1.5", "--video")
    done = launched(*words, "a.mp4", timeout=110)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a.mp4: 92 pictures, 1.5 s\n", "")
    assert frames_in(tmp_path / "a.mp4") == 92
    assert launch(*words, "a.gif").stdout == "a.gif: 31 pictures, 1.6 s\n"
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size[1] == 420


def test_whole_episodes_return_what_eval_says(catch: Path, launch: Launch) -> None:
    expected = ringside.evaluate(catch, env=CATCH, episodes=3, seed=5, device="cpu")["returns"]
    options = ["--load", str(catch), "--env", CATCH, "--device", "cpu", "--seed", "5", "--episodes", "3"]
    done = launch("play", *options, "--video", "a.mp4", "--speed", "4")
    told = [f"{CATCH}: episode {i} returned {expected[i]:,.10g} after 12 steps" for i in range(3)]
    assert (done.returncode, done.stdout.splitlines()[:4]) == (0, [*told, "a.mp4: 36 pictures, 0.6 s"])


def test_a_window_shows_episodes(catch: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str | None] = []

    def factory(render_mode: str | None = None) -> Catch:
        modes.append(render_mode)
        return Catch()

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    words = ["play", "--load", str(catch), "--env", CATCH, "--device", "cpu", "--episodes", "2"]
    done = launch(*words)
    assert done.returncode == 2
    assert re.search(
        "got an unexpected keyword .* 'render_mode'.* Write a video instead: --video FILE.mp4.", done.stderr
    )
    monkeypatch.setattr("tests.support.pixel_game.factory", factory)
    monkeypatch.setattr("ringside.agents.player.time.sleep", lambda seconds: None)
    done = launch(*words)
    assert (done.returncode, done.stdout.count("after 12 steps")) == (0, 2)
    assert modes == [None, "human"], "one is asked for its actions"


def test_a_window_shows_a_game_for_seconds(launched: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    weights = random_weights(tmp_path / "run")
    words = ("play", "--load", str(weights), "--device", "cpu", "--seconds", "1.5")
    done = launched(*words, timeout=110)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setenv("DISPLAY", ":987")
    done = launched(*words, timeout=110)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "emulator of pong cannot be started: Failed to initialize SDL. Write a video instead: --video" in done.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_a_stopped_video_is_whole(catch: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A first signal ends it with 0, a second one at once; `timeout` sends one twice, which counts once."""
    step, steps = Episode.step, 0

    def counted(self: Episode, chosen: int) -> Outcome | None:
        nonlocal steps
        steps += 1
        if steps == 17:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            if times == 2:
                monkeypatch.setattr("shared.process.signals.SECOND_AFTER_SECONDS", -1.0)
                signal.raise_signal(signal.SIGINT)
        return step(self, chosen)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Episode, "step", counted)
    options = ["--load", str(catch), "--env", CATCH, "--device", "cpu", "--episodes", "10"]
    done = launch("play", *options, "--video", "a.mp4")
    printed = done.stdout.splitlines()
    assert printed[0].endswith("after 12 steps")
    assert (done.returncode, printed[1:]) == ((0, ["a.mp4: 17 pictures, 1.1 s"]) if times == 1 else (130, []))
    assert frames_in(Path("a.mp4")) == 18 - times
    assert signal.getsignal(signal.SIGTERM) == before


REFUSED = [
    (["--load", "{pong}"], "There is no display for a window: write a video with --video FILE.mp4 or FILE.gif"),
    (["--load", "{pong}", "--scale", "1"], "--scale 1 is for a video: pass --video, too."),
    (["--load", "{pong}", "--speed", "0.5"], "--speed 0.5 is for a video: pass --video, too."),
    (["--load", "{pong}", "--video", "a.avi"], "choose one of .mp4 and .gif"),
    (["--load", "{pong}", "--video", "no/a.mp4"], "its directory does not exist"),
    (["--load", "{pong}", "--video", "a.mp4", "--game", "breakout"], "breakout has the actions NOOP FIRE RIGHT LE"),
    (["--load", "{broken}", "--video", "a.mp4"], "cannot be used."),
    (["--load", "{pong}", "--speed", "0"], "--speed 0 is not between"),
    (["--load", "{pong}", "--scale", "0"], "--scale 0 is not between"),
    (["--load", "{pong}", "--seconds", "nan"], "--seconds nan must be more than 0"),
    (["--load", "{pong}", "--episodes", "1e15"], "--episodes 1_000_000_000_000_000 must lie between"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
@pytest.mark.usefixtures("no_display")
def test_options_that_play_refuses(tmp_path: Path, refused: Refused, arguments: list[str], sentence: str) -> None:
    pong, broken = random_weights(tmp_path / "run"), tmp_path / "broken.safetensors"
    broken.write_bytes(pong.read_bytes()[:-10])
    assert sentence in refused("play", *(word.format(pong=pong, broken=broken) for word in arguments))
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize(("wrong", "code"), [("threads", 0), ("old_step", 1)])
def test_eval_ends_whatever_its_env_leaves(launched: Launch, tmp_path: Path, wrong: str, code: int) -> None:
    env = f"tests.support.odd_envs:factory@wrong={wrong}"
    weights = random_weights(tmp_path / "run", env, actions=3)
    done = launched("eval", "--load", str(weights), "--env", env, "--episodes", "2", "--device", "cpu")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert ("failed in step() of env 0" in done.stderr) == bool(code)


def test_eval_plays_and_says_how_well(launch: Launch, tmp_path: Path) -> None:
    weights = random_weights(tmp_path / "run")
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


def test_weights_are_judged_by_the_rules_of_their_run(tmp_path: Path) -> None:
    weights = random_weights(tmp_path / "run", CATCH, actions=3, eval_epsilon=0.5, eval_max_frames=40)
    judged = ringside.evaluate(weights, env=CATCH, episodes=3, device="cpu")
    assert (judged["eval_epsilon"], judged["eval_max_frames"], judged["steps"]) == (0.5, 40, 30)
    given = ringside.evaluate(weights, env=CATCH, episodes=3, device="cpu", eval_epsilon=0.0, eval_max_frames=20)
    assert (given["eval_epsilon"], given["eval_max_frames"], given["steps"]) == (0.0, 20, 15)


@pytest.mark.parametrize(("protocol", "episodes"), [("dopamine", 3), ("dqn_zoo", 2)])
def test_protocols_count_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Any, episodes: int) -> None:
    """In the place of 125,000 steps 30, in falls of 12 each."""
    monkeypatch.setitem(PROTOCOLS, protocol, replace(PROTOCOLS[protocol], eval_steps=30))
    weights = random_weights(tmp_path / "run", CATCH, actions=3, protocol=protocol)
    judged = ringside.evaluate(weights, env=CATCH, device="cpu")
    assert (judged["episodes"], judged["steps"], judged["eval_steps"]) == (episodes, 12 * episodes, 30)
    told = ringside.evaluate(weights, env=CATCH, device="cpu", episodes=4)
    assert (told["episodes"], told["eval_steps"]) == (4, None)
    assert told["returns"][:episodes] == judged["returns"]


SAMPLED = {"eval_actions": "sample", "eval_epsilon": 0.0}
RULES = [
    ({"game": "pong"}, "pong, protocol nature, greedy actions and epsilon 0.05, at most 18,000 frames"),
    ({"game": CATCH, "episodes": 2}, f"{CATCH}, greedy actions and epsilon 0.05, at most 4,500 steps"),
    ({"game": "pong"} | SAMPLED, "pong, protocol nature, sampled actions, at most 18,000 frames"),
]


@pytest.mark.parametrize(("result", "rules"), RULES)
def test_the_rules_that_are_printed_are_those_that_were_played_by(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], rules: str
) -> None:
    figures = {"protocol": "nature", "eval_epsilon": 0.05, "eval_actions": "greedy", "eval_max_frames": 18_000}
    figures |= dict.fromkeys(("mean", "median", "best", "episodes"), 1) | {"sd": 0.0, "human_normalized": None}
    monkeypatch.setattr(evaluating, "evaluate", lambda *positional, **options: figures | result)
    episodes = "2 episodes" if "episodes" in result else "1 episode"
    says = f"{rules}: mean 1.00 +- 0.00, median 1.00, best 1.00 of {episodes}\n"
    assert launch("eval", "--load", "pong").stdout == says


@pytest.mark.parametrize("library", ["msgspec", "torch"])
def test_ctrl_c_while_libraries_load_ends_without_a_traceback(tmp_path: Path, library: str) -> None:
    """Python turns it into an exception in the middle of an import, which some libraries do not survive."""
    (tmp_path / f"{library}.py").write_text("import sys\nprint('loading', flush=True)\nsys.stdin.read()\n")
    words = [sys.executable, "launch.py", "eval", "--load", "pong", "--episodes", "1"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env=environment, text=True, **pipes) as process:
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
    monkeypatch.setattr(evaluating, "EvaluationPolicy", lambda *weights, **options: network)
    weights = random_weights(tmp_path, CATCH, actions=3, method="a2c", recurrent=True)
    ringside.evaluate(weights, env=CATCH, episodes=evaluating.ROWS + 2, device="cpu")
    assert seen == [[step % 12] * 2 for step in range(24)], "falls of 12 steps each"
