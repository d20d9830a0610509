"""`--init-from`: weights of another network or action set are refused in a sentence, before anything starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ringside
from learner.initial import initial_parameters
from shared.checkpoint import CheckpointWriter
from shared.config import Config
from shared.parameters import network_of
from shared.sizes import sizes_of
from tests.conftest import Launch

ACTIONS = 6
RAINBOW = {"method": "c51", "atoms": 11, "dueling": True, "noisy": True}
IQN = {"method": "iqn", "dueling": True, "layer_norm": True}


def weights(run_dir: Path, **settings: object) -> Path:
    """A file of fresh weights for Pong."""
    config = Config().with_settings(**({"game": "pong", "network": "small"} | settings))
    flat = initial_parameters(network_of(config, ACTIONS), 1)
    CheckpointWriter(run_dir, config, sizes_of(config), ACTIONS).save_best(flat, version=7, mean_return=0.0)
    return run_dir / "checkpoints" / "best.safetensors"


SMALL = ("--game", "pong", "--network", "small", "--envs", "8", "--device", "cpu", "--run-dir", "new")


@pytest.mark.parametrize(
    ("of", "words", "says"),
    [
        ({}, ("--dueling",), "The weights are of the network small, not small dueling=True."),
        (
            RAINBOW,
            ("--method", "c51", "--atoms", "11"),
            "The weights are of the network small method=c51 atoms=11 v_min=-10.0 v_max=10.0 dueling=True noisy=0.5, "
            "not small method=c51 atoms=11 v_min=-10.0 v_max=10.0.",
        ),
        (
            {"method": "c51", "atoms": 11},
            ("--method", "c51", "--atoms", "11", "--v-max", "5"),
            "The weights are of the network small method=c51 atoms=11 v_min=-10.0 v_max=10.0, not small method=c51 "
            "atoms=11 v_min=-10.0 v_max=5.0.",
        ),
        (
            IQN,
            (),
            "The weights are of the network small method=iqn dueling=True layer_norm=True fractions=32, not small.",
        ),
        ({}, ("--network", "nature"), "The weights are of the network small, not nature."),
        ({}, ("--game", "breakout"), "The weights choose among 6 actions; the game here has 4."),
    ],
)
def test_weights_of_another_network_are_refused(
    launch: Launch, tmp_path: Path, of: dict[str, object], words: tuple[str, ...], says: str
) -> None:
    done = launch(*SMALL, *words, "--init-from", str(weights(tmp_path / "old", **of)))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"launch.py: {says}\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("of", [RAINBOW, IQN])
def test_weights_of_the_same_network_are_taken(tmp_path: Path, of: dict[str, object]) -> None:
    file = weights(tmp_path / "old", **of)
    config = Config().with_settings(
        game="pong", network="small", envs=8, device="cpu", run_dir=tmp_path / "new", init_from=file, **of
    )
    assert not ringside.continues(ringside.check(config))


@pytest.mark.parametrize("of", [RAINBOW, IQN])
def test_an_agent_of_any_network_acts_without_noise(tmp_path: Path, of: dict[str, object]) -> None:
    agent = ringside.load_agent(weights(tmp_path / "old", **of), device="cpu")
    for seed in range(5):
        frames = np.random.default_rng(seed).integers(0, 256, (4, 84, 84), np.uint8)
        assert len({agent(frames) for _ in range(3)}) == 1
