"""`launch.py eval` and `load_agent`, on weights that know nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ringside
from shared.scores import REFERENCE, human_normalised
from tests.checkpoints import random_weights
from tests.conftest import Launch, Refused


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of small random weights for Pong."""
    return random_weights(tmp_path / "run")


def test_eval_plays_and_says_how_well(launched: Launch, weights: Path, tmp_path: Path) -> None:
    done = launched("eval", "--load", str(weights), "--episodes", "2", "--device", "cpu", "--json", "a.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pong, protocol nature: mean -2")
    assert "human-normalised" in done.stdout
    first = json.loads((tmp_path / "a.json").read_text())
    assert (first["episodes"], len(first["returns"]), first["version"], first["epsilon"]) == (2, 2, 7, 0.05)
    assert first["mean"] == np.mean(first["returns"])
    assert first["human_normalised"] == human_normalised("pong", first["mean"])


def test_the_same_seed_plays_the_same(tmp_path: Path) -> None:
    catch = "tests.pixel_game:factory"
    weights = random_weights(tmp_path / "run", catch, actions=3)
    found = [
        ringside.evaluate(weights, env=catch, episodes=20, seed=seed, device="cpu")["returns"] for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]


def test_eval_refuses_what_it_cannot_play(refused: Refused, weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "best.safetensors" in refused("eval", "--load", str(weights))


def test_normalised_scores() -> None:
    assert len(REFERENCE) == 57
    assert human_normalised("pong", -20.7) == 0
    assert human_normalised("pong", 14.6) == 1
    assert human_normalised("adventure", 5) is None
