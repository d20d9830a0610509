"""`launch.py play` and `record` as a user types them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import pytest
from PIL import Image

import ringside
from actors.env import Outcome
from actors.evaluation import Episode
from launch import main
from shared.root import ROOT
from tests.conftest import Launch
from tests.support.checkpoints import random_weights

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
    assert done.stdout == "a.mp4: 90 pictures, 1.5 s\n"
    assert frames_in(tmp_path / "a.mp4") == 90


def test_a_gif_of_a_game(launch: Launch, tmp_path: Path) -> None:
    """`tests/command/test_readme.py` makes one as a user does."""
    weights = random_weights(tmp_path / "run")
    done = launch("play", "--load", str(weights), "--device", "cpu", "--video", "a.gif", "--seconds", "1.5")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "a.gif: 30 pictures, 1.5 s\n")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size[1] == 420


def test_whole_episodes_return_what_eval_says(catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = ringside.evaluate(catch, env=CATCH, episodes=3, seed=5, device="cpu")["returns"]
    options = ["--load", str(catch), "--env", CATCH, "--device", "cpu", "--seed", "5", "--episodes", "3"]
    assert main(["play", *options, "--video", str(tmp_path / "a.mp4"), "--speed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{CATCH}: episode {i} returned {expected[i]:,.10g} after 12 steps" for i in range(3)]
    assert lines[3] == f"{tmp_path}/a.mp4: 36 pictures, 0.6 s"


@pytest.mark.parametrize("montage", [False, True])
def test_record_writes_videos_and_what_they_return(
    catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], montage: bool
) -> None:
    out = tmp_path / "deep" / "out"
    options = f"--load {catch} --env {CATCH} --device cpu --episodes 10 --out {out} --scale 1".split()
    assert main(["record", *options, *["--montage"] * montage]) == 0
    expected = ringside.evaluate(catch, env=CATCH, episodes=10, device="cpu")
    found = json.loads((out / "returns.json").read_text())
    assert found["videos"] == (["montage.mp4"] if montage else [f"episode-{i:03}.mp4" for i in range(10)])
    assert {path.name for path in out.iterdir()} == {"returns.json", *found["videos"]}
    assert found["lengths"] == [12] * 10
    assert {name: found[name] for name in expected if name != "machine"} == {
        name: value for name, value in expected.items() if name != "machine"
    }
    assert [frames_in(out / name) for name in found["videos"]] == [48] * len(found["videos"])
    assert "of 10 episodes" in capsys.readouterr().out.splitlines()[-1]
    assert main(["record", *options]) == 2
    assert "is not empty; choose another directory" in capsys.readouterr().err


def test_record_says_which_videos_are_cut(
    catch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("agents.video", "tasks.trained.record"):
        monkeypatch.setattr(f"ringside.{module}.GIF_SECONDS", 0.5)
    options = f"--load {catch} --env {CATCH} --device cpu --episodes 2 --format gif --scale 1".split()
    assert main(["record", *options, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("2 of the videos show the first 0.5 seconds only: a GIF is not made longer")


def test_a_window_shows_whole_episodes(
    catch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert (
        main(["play", "--load", str(catch), "--env", CATCH, "--device", "cpu", "--speed", "100", "--episodes", "2"])
        == 0
    )
    assert capsys.readouterr().out.count("after 12 steps") == 2
    assert main(["play", "--human", "--game", "breakout", "--speed", "100", "--seconds", "2"]) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_left_as_it_was(catch: Path, number: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    person, program = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "launch.py"), "play", "--load", str(catch), "--env", CATCH, "--device", "cpu"],
        cwd=ROOT,
        env=environment | {"TERM": "xterm-256color"},
        stdin=program,
        stdout=program,
        stderr=subprocess.PIPE,
    )
    os.close(program)
    seen, limit = b"", time.monotonic() + 90
    try:
        told = False
        poll = select.poll()
        poll.register(person, select.POLLIN)
        while poll.poll(1000 * max(0.0, limit - time.monotonic())):
            try:
                seen += os.read(person, 1 << 16)
            except OSError:  # the program has ended
                break
            if not told and "\u2580".encode() in seen:
                process.send_signal(number)
                told = True
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        os.close(person)
    assert (process.returncode, errors) == (0, b"")
    leave = b"\x1b[?25h\x1b[?1049l"
    assert seen.count(leave) == 1
    assert b"\x1b" not in seen.partition(leave)[2]


@pytest.mark.parametrize("montage", [False, True])
def test_a_recording_that_is_stopped_is_whole_as_far_as_it_goes(
    catch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], montage: bool
) -> None:
    step = Episode.step
    steps = 0

    def counted(self: Episode, chosen: int) -> Outcome:
        nonlocal steps
        steps += 1
        if steps == 70:  # of the ten episodes, or of the first eight
            signal.raise_signal(signal.SIGTERM)
        return step(self, chosen)

    monkeypatch.setattr(Episode, "step", counted)
    out = tmp_path / "out"
    options = f"--load {catch} --env {CATCH} --device cpu --episodes 10 --out {out} --scale 1".split()
    assert main(["record", *options, *["--montage"] * montage]) == 1
    kept = f"The video up to there is in {out}.\n" if montage else ""
    assert capsys.readouterr().out == f"Stopped: 0 of 10 episodes were over.\n{kept}"
    assert [(path.name, frames_in(path)) for path in out.iterdir()] == ([("montage.mp4", 4 * 6)] if montage else [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--load says which agent plays"),
        (["--load", "nowhere"], "--load nowhere does not exist"),
        (["--load", "{pong}"], "neither a display nor a terminal to play in; write a video with --video FILE.mp4"),
        (["--load", "{pong}", "--screen", "window"], "There is no display for a window"),
        (["--load", "{pong}", "--video", "a.mp4", "--screen", "window"], "--video shows nothing on a screen"),
        (["--human", "--game", "pong", "--plugin", "mine"], "--plugin mine is about a trained agent"),
        (["--load", "{pong}", "--video", "a.avi"], "choose one of .mp4 and .gif"),
        (["--load", "{pong}", "--video", "no/a.mp4"], "its directory does not exist"),
        (
            ["--load", "{pong}", "--video", "a.mp4", "--game", "breakout"],
            "breakout has the actions NOOP FIRE RIGHT LEFT, but",
        ),
        (["--load", "{pong}", "--video", "a.mp4", "--game", "pang"], "There is no game 'pang'; did you mean pong?"),
        (["--load", "{broken}", "--video", "a.mp4"], "cannot be used."),
        (["--human"], "--human needs --game"),
        (["--human", "--game", "breakout"], "--human needs a window"),
        (["--human", "--game", "breakout", "--video", "a.mp4"], "omit --video"),
        (["--human", "--game", "breakout", "--eval-actions", "greedy"], "--eval-actions is about an agent that plays"),
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "out", "--episodes", "0"], "--episodes 0 must lie between 1 and 100_000"),
        (["--out", "out", "--montage", "--episodes", "101"], "--montage shows at most 100"),
        (["--out", "file"], "--out file is a file: name a directory."),
    ],
)
def test_options_that_record_refuses(
    catch: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(["record", "--load", str(catch), "--env", CATCH, *arguments]) == 2
    assert sentence in capsys.readouterr().err


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
