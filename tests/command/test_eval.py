"""`launch.py eval` and `load_agent`, on weights that know nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ringside
from shared.checkpoint import CheckpointWriter
from shared.config import Config
from shared.parameters import Network, parameters_of
from shared.scores import REFERENCE, human_normalised
from shared.sizes import sizes_of
from tests.conftest import Launch

ACTIONS = 6


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of small random weights for Pong."""
    config = Config().with_settings(game="pong", network="small")
    flat = np.random.default_rng(1).normal(0, 0.05, parameters_of(Network("small", ACTIONS)).count).astype(np.float32)
    CheckpointWriter(tmp_path / "run", config, sizes_of(config), ACTIONS).save_best(flat, version=7, mean_return=0.0)
    return tmp_path / "run" / "checkpoints" / "best.safetensors"


def test_eval_plays_and_says_how_well(launch: Launch, weights: Path, tmp_path: Path) -> None:
    arguments = ("eval", "--load", str(weights), "--episodes", "2", "--device", "cpu", "--json")
    done = launch(*arguments, "a.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pong, protocol nature: mean -2")
    assert "human-normalised" in done.stdout
    first = json.loads((tmp_path / "a.json").read_text())
    assert (first["episodes"], len(first["returns"]), first["version"], first["epsilon"]) == (2, 2, 7, 0.05)
    assert first["mean"] == np.mean(first["returns"])
    assert first["human_normalised"] == human_normalised("pong", first["mean"])
    assert launch(*arguments, "b.json").stdout == done.stdout
    again = json.loads((tmp_path / "b.json").read_text())
    assert (again["returns"], again["steps"]) == (first["returns"], first["steps"])


def test_an_agent_acts(weights: Path) -> None:
    agent = ringside.load_agent(weights, device="cpu")
    frames = np.random.default_rng(2).integers(0, 256, (4, 84, 84), np.uint8)
    assert agent.act(frames) in range(agent.actions)
    assert (agent.game, agent.act(frames)) == ("pong", agent.act(frames))


def test_eval_refuses_what_it_cannot_play(launch: Launch, weights: Path, tmp_path: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-10])
    done = launch("eval", "--load", str(weights))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "best.safetensors" in done.stderr


def test_normalised_scores() -> None:
    assert len(REFERENCE) == 57
    assert human_normalised("pong", -20.7) == 0
    assert human_normalised("pong", 14.6) == 1
    assert human_normalised("adventure", 5) is None
