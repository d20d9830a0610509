"""A run directory of an older version is evaluated, played and reported; --resume refuses it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import ringside
from ringside.agents.stored_weights import weights_at
from ringside.tasks import report
from shared.errors import ConfigError
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.runs import SMALL

ARCHIVE = ROOT / "tests" / "support" / "reference_run" / "reference_run.tar.xz"
WEIGHTS = "weights-00000004.safetensors"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run directory."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "run"


@pytest.mark.parametrize("load", ["run", f"run/checkpoints/{WEIGHTS}"])
def test_it_is_evaluated(run: Path, tmp_path: Path, load: str) -> None:
    result = ringside.evaluate(tmp_path / load, episodes=1, device="cpu", eval_max_frames=400)
    assert (result["game"], result["protocol"], result["episodes"]) == ("pong", "nature", 1)


def test_its_agent_acts(run: Path) -> None:
    agent = ringside.load_agent(run, device="cpu")
    assert agent(np.zeros((4, 84, 84), np.uint8)) in range(6)
    assert weights_at(run).plugin is None


def test_it_is_reported(run: Path, tmp_path: Path) -> None:
    page, left_out = report.write_report([run], tmp_path / "report")
    assert not left_out
    assert "pong" in page.read_text()


def test_it_is_played_into_a_video(run: Path, launch: Launch, tmp_path: Path) -> None:
    video = tmp_path / "pong.gif"
    done = launch("play", "--load", str(run), "--video", str(video), "--seconds", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert video.stat().st_size > 1_000


def test_its_weights_may_begin_a_run(run: Path, tmp_path: Path) -> None:
    small = {name.removeprefix("--").replace("-", "_"): value for name, value in SMALL.items()}
    chosen = {name: small[name] for name in ("network",)} | {"game": "pong", "device": "cpu"}
    ready = ringside.plan(ringside.Config().with_settings(**chosen, init_from=run, replay_size=20_000, envs=8))
    assert ready.config.run.init_from == run


def test_it_cannot_be_resumed_and_says_so_in_one_sentence(run: Path, refused: Refused) -> None:
    said = refused("--resume", str(run))
    assert "The configuration was written by another version of Ringside; use that one." in said
    assert json.loads((run / "config.json").read_text())["extend"]["method"] == "dqn"
    with pytest.raises(ConfigError, match="another version of Ringside"):
        ringside.starting_point(None, run)
