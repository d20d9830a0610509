"""Resolved configurations that cannot run, and extreme ones that can."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from ringside.run import planning
from shared.config import resolve, validate
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.network_spec import Network, network_of
from tests.support.configurations import assert_refused, settled


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"actors": 5}, "--actors 5 is more than the 4 lanes"),
        ({"envs": 2, "inference_batch": 2}, "--actors 2 is more than the 1 lane of"),
        ({"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
        ({"inference_batch": 6}, "divides --envs 8"),
        ({"precision": "tf32"}, "--precision tf32 is for CUDA"),
        ({"replay_on": "device"}, "--replay-on device is for CUDA"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(wrong: dict[str, Any], says: str) -> None:
    validate.resolved(settled())
    assert_refused(validate.resolved, settled(**wrong), says)


def test_defaults_that_ranks_cannot_share_are_refused() -> None:
    config = resolve.resolve(Config().with_settings(device="cpu", learner_ranks=2, batch_size=34))
    with pytest.raises(ConfigError, match="--batch-size 34 must be a multiple of --learner-shards 4"):
        validate.resolved(config)


def test_the_window_holds_an_observation_and_the_steps_behind_it() -> None:
    small = {"envs": 256, "round_steps": 1_024, "learning_starts": 1_024, "replay_size": 1_500, "device": "cpu"}
    assert planning.check(Config().with_settings(**small)).run_schedule.window_ticks == 4
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 6 that an observation with --n-step 3 needs; 1_536 is"):
        planning.check(Config().with_settings(**small, n_step=3))
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 5 that an observation with --n-step 1 needs; 1_280 is"):
        planning.check(Config().with_settings(**small, frame_stack=5))


@pytest.mark.parametrize(
    "extreme",
    [
        {"method": "iqn", "iqn_policy_samples": 4_096, "iqn_samples": 4_096},
        {"method": "c51", "v_min": -1e6, "v_max": 1e6, "atoms": 4_096},
        {"noisy": True, "noisy_std": 100.0, "network": "impala", "width": 64},
        {"network": "a3c", "normalize": "all"},
        {"method": "qr-dqn", "atoms": 4_096},
        {"env": "m:f", "frame_size": 512, "frame_color": "rgb", "frame_stack": 16},
        {"env": "m:f", "frame_size": 4, "frame_stack": 1, "network": "impala"},
    ],
)
def test_every_network_that_may_run_can_be_read_again(extreme: dict[str, Any]) -> None:
    config = Config().with_settings(**extreme)
    validate.settings(config)
    network = network_of(config, 18)
    assert Network.from_json(json.loads(json.dumps(asdict(network)))) == network
