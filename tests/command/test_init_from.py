"""`--init-from`: weights of another network or action set are refused in a sentence, before anything starts."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ringside
from learner.networks.policy import Policy
from ringside.agents.stored_weights import weights_at
from ringside.run import planning
from shared.config.settings import Config
from tests.conftest import Refused
from tests.support.checkpoints import random_weights

RAINBOW = {"method": "c51", "atoms": 11, "dueling": True, "noisy": True}
IQN = {"method": "iqn", "dueling": True, "normalize": "last"}
NORMALIZED = {"network": "a3c", "normalize": "all", "initial": "orthogonal"}


SMALL = ("--game", "pong", "--network", "small", "--envs", "8", "--device", "cpu", "--run-dir", "new")


OTHER_NETWORKS = [
    ({}, ("--dueling",), "The weights are of another network: small, here small dueling=True."),
    (
        RAINBOW,
        ("--method", "c51", "--atoms", "11", "--v-max", "5"),
        "The weights are of another network: small method=c51 atoms=11 v_min=-10.0 v_max=10.0 dueling=True "
        "noisy=0.5, here small method=c51 atoms=11 v_min=-10.0 v_max=5.0.",
    ),
    (IQN, (), "The weights are of another network: small method=iqn dueling=True layer_norm=True fractions=32, "),
    ({"normalize": "all"}, ("--normalize", "last"), "small layer_norm=True conv_norm=True, here small layer_norm"),
    ({}, ("--network", "nature"), "The weights are of another network: small, here nature."),
    ({}, ("--game", "breakout"), "The weights choose among 6 actions; the game here has 4."),
]


@pytest.mark.parametrize(("of", "words", "says"), OTHER_NETWORKS)
def test_another_network_is_refused(refused: Refused, of: dict[str, Any], words: tuple[str, ...], says: str) -> None:
    said = refused(*SMALL, *words, "--init-from", str(random_weights(Path("old"), **of)))
    assert re.match(r"launch\.py: --init-from .* cannot be used\. The weights ", said)
    assert says in said
    assert not Path("new").exists()


@pytest.mark.parametrize("of", [RAINBOW, IQN, NORMALIZED])
def test_weights_of_the_same_network_are_taken(tmp_path: Path, of: dict[str, Any]) -> None:
    settings = {"game": "pong", "network": "small", "envs": 8, "device": "cpu", "run_dir": tmp_path / "new"} | of
    config = Config().with_settings(**settings, init_from=random_weights(tmp_path / "old", **of))
    planning.require_initial_weights(planning.check(config))


def test_an_agent_of_a_noisy_network_acts_without_noise(tmp_path: Path) -> None:
    """Its values are those of a policy that does not explore, and not of one that does."""
    file = random_weights(tmp_path / "old", **RAINBOW)
    found, agent = weights_at(file), ringside.load_agent(file, device="cpu")
    stacks = np.random.default_rng(1).integers(0, 256, (1, 4, 84, 84), np.uint8)
    rows, keep, places = np.arange(4)[None], np.ones((1, 4), bool), np.zeros(1, np.int64)
    values = {}
    for seed in (None, 1):
        policy = Policy(found.network, torch.device("cpu"), "fp32", batch=1, explore_seed=seed)
        policy.load(found.flat)
        values[seed] = policy.values_from_rows(stacks[0], rows, keep, places, (places, places))[0].tolist()
    assert agent.q_values(stacks[0]).tolist() == values[None]
    assert values[1] != values[None]
