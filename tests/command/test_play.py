"""`launch.py play` as a user types it."""

from __future__ import annotations

import signal
from pathlib import Path

import av
import pytest
from PIL import Image

import ringside
from actors.env import Outcome
from actors.evaluation import Episode
from launch import main
from tests.conftest import Launch
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


def test_a_video_of_a_game(launched: Launch, tmp_path: Path) -> None:
    weights = random_weights(tmp_path / "run")
    words = ("--load", str(weights), "--device", "cpu", "--video", "a.mp4", "--seconds", "1.5")
    done = launched("play", *words, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a.mp4: 92 pictures, 1.5 s\n"
    assert frames_in(tmp_path / "a.mp4") == 92


def test_a_gif_of_a_game(launch: Launch, tmp_path: Path) -> None:
    """`tests/command/test_readme.py` makes one as a user does."""
    weights = random_weights(tmp_path / "run")
    done = launch("play", "--load", str(weights), "--device", "cpu", "--video", "a.gif", "--seconds", "1.5")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "a.gif: 31 pictures, 1.6 s\n")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size[1] == 420


def test_whole_episodes_return_what_eval_says(catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = ringside.evaluate(catch, env=CATCH, episodes=3, seed=5, device="cpu")["returns"]
    options = ["--load", str(catch), "--env", CATCH, "--device", "cpu", "--seed", "5", "--episodes", "3"]
    assert main(["play", *options, "--video", str(tmp_path / "a.mp4"), "--speed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{CATCH}: episode {i} returned {expected[i]:,.10g} after 12 steps" for i in range(3)]
    assert lines[3] == f"{tmp_path}/a.mp4: 36 pictures, 0.6 s"


def test_a_window_shows_whole_episodes(
    catch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modes: list[str | None] = []

    def factory(render_mode: str | None = None) -> Catch:
        modes.append(render_mode)
        return Catch()

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    words = ["play", "--load", str(catch), "--env", CATCH, "--device", "cpu", "--episodes", "2"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "got an unexpected keyword argument 'render_mode'" in said
    assert "Write a video instead: --video FILE.mp4." in said
    monkeypatch.setattr("tests.support.pixel_game.factory", factory)
    monkeypatch.setattr("ringside.agents.player.time.sleep", lambda seconds: None)
    assert main(words) == 0
    assert capsys.readouterr().out.count("after 12 steps") == 2
    assert modes == [None, "human"], "one is asked for its actions"


def test_a_window_shows_a_game_for_some_seconds(
    launched: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    weights = random_weights(tmp_path / "run")
    words = ("play", "--load", str(weights), "--device", "cpu", "--seconds", "1.5")
    done = launched(*words, timeout=110)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setenv("DISPLAY", ":987")
    done = launched(*words, timeout=110)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert (
        "The emulator of pong cannot be started: Failed to initialize SDL. Write a video instead: --video"
        in done.stderr
    )


@pytest.mark.parametrize("times", [1, 2])
def test_a_video_that_is_stopped_is_whole_as_far_as_it_goes(
    catch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
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
    assert main(["play", *options, "--video", str(tmp_path / "a.mp4")]) == (0 if times == 1 else 130)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("after 12 steps")
    assert printed[1:] == ([f"{tmp_path}/a.mp4: 17 pictures, 1.1 s"] if times == 1 else [])
    assert frames_in(tmp_path / "a.mp4") == 18 - times
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--load is missing"),
        (["--load", "nowhere", "--video", "a.mp4"], "--load nowhere does not exist"),
        (["--load", "{pong}"], "There is no display for a window: write a video with --video FILE.mp4 or FILE.gif"),
        (["--load", "{pong}", "--scale", "2"], "--scale 2 is for a video: pass --video, too."),
        (["--load", "{pong}", "--speed", "0.5"], "--speed 0.5 is for a video: pass --video, too."),
        (["--load", "{pong}", "--video", "a.avi"], "choose one of .mp4 and .gif"),
        (["--load", "{pong}", "--video", "no/a.mp4"], "its directory does not exist"),
        (
            ["--load", "{pong}", "--video", "a.mp4", "--game", "breakout"],
            "breakout has the actions NOOP FIRE RIGHT LEFT, but",
        ),
        (["--load", "{pong}", "--video", "a.mp4", "--game", "pang"], "There is no game 'pang'; did you mean pong?"),
        (["--load", "{broken}", "--video", "a.mp4"], "cannot be used."),
        (["--load", "{pong}", "--speed", "0"], "--speed 0 is not between"),
        (["--load", "{pong}", "--scale", "0"], "--scale 0 is not between"),
        (["--load", "{pong}", "--seconds", "nan"], "--seconds nan must be more than 0"),
        (["--load", "{pong}", "--episodes", "0"], "--episodes 0 must lie between 1 and 100_000"),
        (["--load", "{pong}", "--seed", "-1"], "--seed -1 must not be negative"),
        (["--load", "{pong}", "--episodes", "1e15"], "--episodes 1_000_000_000_000_000 must lie between"),
        (["--load", "{pong}", "--video", ""], "The value of --video is empty: give a path, or omit it."),
    ],
)
@pytest.mark.usefixtures("no_display")
def test_options_that_play_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pong, broken = random_weights(tmp_path / "run"), tmp_path / "broken.safetensors"
    broken.write_bytes(pong.read_bytes()[:-10])
    assert main(["play", *(word.format(pong=pong, broken=broken) for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert sentence in captured.err
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize(("wrong", "code"), [("threads", 0), ("old_step", 1)])
def test_a_command_that_plays_ends_whatever_its_env_leaves(
    launched: Launch, tmp_path: Path, wrong: str, code: int
) -> None:
    env = f"tests.support.odd_envs:factory@wrong={wrong}"
    weights = random_weights(tmp_path / "run", env, actions=3)
    words = ["--load", str(weights), "--env", env, "--episodes", "2", "--device", "cpu"]
    done = launched("eval", *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("failed in step() of env 0" in done.stderr) == bool(code)
