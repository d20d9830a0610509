"""Weights of an older version are evaluated, played and trained on, and its records reported; its runs are refused."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

import ringside
from ringside.agents.stored_weights import weights_at
from ringside.tasks import report
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


def test_its_weights_are_evaluated(run: Path) -> None:
    result = ringside.evaluate(run / "checkpoints" / WEIGHTS, episodes=1, device="cpu", eval_max_frames=400)
    assert (result["game"], result["protocol"], result["episodes"]) == ("pong", "nature", 1)


def test_its_agent_acts(run: Path) -> None:
    agent = ringside.load_agent(run / "checkpoints" / WEIGHTS, device="cpu")
    assert agent(np.zeros((4, 84, 84), np.uint8)) in range(6)
    assert weights_at(run / "checkpoints" / WEIGHTS).plugin is None


def test_it_is_reported(run: Path, tmp_path: Path) -> None:
    page, left_out = report.write_report([run], tmp_path / "report")
    assert not left_out
    assert "pong" in page.read_text()


def test_it_is_played_into_a_video(run: Path, launch: Launch, tmp_path: Path) -> None:
    video = tmp_path / "pong.gif"
    weights = str(run / "checkpoints" / WEIGHTS)
    done = launch("play", "--load", weights, "--video", str(video), "--seconds", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert video.stat().st_size > 1_000


def test_its_weights_may_begin_a_run(run: Path, tmp_path: Path) -> None:
    small = {name.removeprefix("--").replace("-", "_"): value for name, value in SMALL.items()}
    chosen = {name: small[name] for name in ("network",)} | {"game": "pong", "device": "cpu"}
    weights = run / "checkpoints" / WEIGHTS
    ready = ringside.plan(ringside.Config().with_settings(**chosen, init_from=weights, replay_size=20_000, envs=8))
    assert ready.config.run.init_from == weights


@pytest.mark.parametrize("words", [("--resume",), ("--init-from",), ("eval", "--load"), ("play", "--load")])
def test_the_run_is_refused_in_one_sentence(run: Path, refused: Refused, words: tuple[str, ...]) -> None:
    said = refused(*words, str(run))
    assert "has format 2; this program knows format 3. Use the version of Ringside that wrote it." in said
