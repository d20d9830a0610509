"""Plug-in and network of docs/extending.md, in a user's folder, train the pixel game; no file stands in for them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.root import ROOT
from tests.support.runs import SMALL, records, summary

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PLAY = {flag: value for flag, value in SMALL.items() if flag != "--game"}
GAME = {"--env": "tests.support.pixel_game:factory"}
PLUGIN = ("--plugin", "log_cosh")
NETWORK = ("--network", "nets:Residual")
LEARNS = (
    "--envs 16 --inference-batch 8 --round-steps 320 --learning-starts 640 --total-steps 3_840 --replay-size 8_000 \
--learning-rate 5e-4 --epsilon-steps 3_000 --epsilon-end 0.02 --discount 0.95"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the files of the page."""
    plugin, method, nets = BLOCK.findall((ROOT / "docs" / "extending.md").read_text())
    home = tmp_path_factory.mktemp("home")
    (home / "log_cosh.py").write_text(plugin)
    (home / "log_cosh_loss.py").write_text(method)
    (home / "nets.py").write_text(nets)
    return home


def command(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in that folder, which ends with this code."""
    asked, environment = [sys.executable, ROOT / "launch.py", *words], {"PYTHONPATH": f".{os.pathsep}{ROOT}"}
    done = subprocess.run(asked, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def words_of(flags: dict[str, str]) -> list[str]:
    return [word for flag in flags.items() for word in flag]


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run of the plug-in on the pixel game."""
    chosen = {"--preset": "log-cosh", "--network": "small", "--sharpness": "2", "--run-dir": "run"}
    command(folder, *PLUGIN, "--plain", *words_of(PLAY), *LEARNS.split(), *words_of(GAME | chosen))
    return folder / "run"


@pytest.mark.timeout(300)
def test_a_plug_in_trains_the_pixel_game(run: Path) -> None:
    found = summary(run)
    assert (found["finished"], found["updates"]) == (True, (3_840 - 640) // 4)
    assert found["mean_return_100"] > -0.2 + 0.5, "played at random it is -0.2"


def test_its_settings_are_written_down(run: Path) -> None:
    settings: dict[str, Any] = json.loads((run / "config.json").read_text())
    assert settings["algorithm"]["settings"] == {"sharpness": 2.0}
    assert (settings["learn"]["network"], settings["run"]["plugin"]) == ("small", "log_cosh")
    assert all(round_["loss"] > 0 for round_ in records(run, "round") if round_["loss"] is not None)


@pytest.mark.timeout(300)
def test_it_is_evaluated_and_resumed_where_it_is_named(folder: Path, run: Path) -> None:
    load = ("eval", "--load", "run", "--episodes", "2", *words_of(GAME))
    unknown = "was trained with the plug-in log_cosh; pass --plugin log_cosh if you trust it."
    assert unknown in command(folder, *load, code=2).stderr
    command(folder, *load, *PLUGIN)
    more = ("--resume", "run", "--plain", "--total-steps", "4_160", *words_of(GAME))
    assert unknown in command(folder, *more, code=2).stderr
    other = command(folder, *more, "--plugin", "log_cosh_loss", code=2)
    assert "--plugin log_cosh_loss loads torch, which actors must not" in other.stderr
    command(folder, *more, *PLUGIN)
    assert summary(run)["steps"] == 4_160


WRONG_SETTINGS = [
    (("--sharpness", "2"), "--sharpness is for --method log-cosh; omit it with --method dqn."),
    (("--method", "log-cosh", "--sharpness", "0"), "--sharpness 0.0 must be above 0 and at most 100."),
]


@pytest.mark.parametrize(("words", "says"), WRONG_SETTINGS)
def test_a_setting_of_a_plug_in_that_cannot_be_is_a_sentence(folder: Path, words: tuple[str, ...], says: str) -> None:
    said = command(folder, *PLUGIN, *words, code=2).stderr
    assert (says in said, "Traceback" in said) == (True, False), said


@pytest.mark.timeout(300)
def test_a_network_of_the_user_trains_is_evaluated_and_resumed(folder: Path) -> None:
    shorter = PLAY | {"--learning-starts": "960", "--total-steps": "1_440", "--train-every": "16", "--run-dir": "net"}
    shorter.pop("--network")
    command(folder, "--preset", "quick", "--plain", *NETWORK, *words_of(GAME | shorter))
    load = ("eval", "--load", "net", "--episodes", "2", *words_of(GAME))
    assert "pass --network nets:Residual if you trust it." in command(folder, *load, code=2).stderr
    command(folder, *load, *NETWORK)
    done = command(folder, "--resume", "net", "--plain", "--total-steps", "1_920", *words_of(GAME), *NETWORK)
    assert "eval --load net --env tests.support.pixel_game:factory --network nets:Residual" in done.stdout
