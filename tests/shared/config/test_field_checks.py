"""Types and ranges of single settings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from shared.config import validate
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.root import ROOT
from tests.support.configurations import ON_POLICY, assert_refused


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("schedule", "conccurrent", "is not one of concurrent, alternate, free"),
        ("batch_size", 32.5, "is not a whole number"),
        ("total_steps", "many", "is not a whole number"),
        ("double", "no", "is not True or False"),
        ("envs", True, "is not a whole number"),
        ("learning_rate", "fast", "is not a finite number"),
        ("run_dir", 3, "is not a path or None"),
        ("acting_precision", "fp8", "is not one of auto, .* or None"),
        ("eval_episodes", "many", "is not a whole number or None"),
        ("learning_rate_end", "low", "is not a finite number or None"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*{says}"):
        Config().with_settings(**{name: value})


def test_a_whole_number_may_be_a_float() -> None:
    learn = Config().with_settings(total_steps=1e6, snapshot_every_steps=2e4).learn
    assert (learn.total_steps, learn.snapshot_every_steps) == (1_000_000, 20_000)
    assert type(learn.total_steps) is int
    assert type(Config().with_settings(checkpoint_every_minutes=5).run.checkpoint_every_minutes) is float


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"envs": 0}, "--envs 0 must be at least 1"),
        ({"graph_updates": -1}, "--graph-updates -1 must lie between 0 and 8"),
        ({"lane_envs": -2}, "--lane-envs -2 must be at least 1"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"total_steps": -1}, "--total-steps -1"),
        ({"train_every": 0}, "--train-every 0"),
        ({"actors": 0}, "--actors 0"),
        ({"learner_threads": 0}, "--learner-threads 0"),
        ({"seed": -1}, "--seed -1 must not be negative"),
        ({"checkpoint_every_minutes": float("nan")}, "--checkpoint-every-minutes nan"),
        ({"discount": 1.01}, "--discount 1.01 must lie between 0 and 1"),
        ({"epsilon_start": -0.1}, "--epsilon-start -0.1"),
        ({"epsilon_end": float("nan")}, "--epsilon-end nan"),
        ({"eval_epsilon": 1.5}, "--eval-epsilon 1.5 must lie between 0 and 1"),
        ({"eval_max_frames": 0}, "--eval-max-frames 0 must lie between 1 and 4_000_000"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0 must be above 0"),
        ({"learning_rate": float("inf")}, "--learning-rate inf"),
        ({"learning_rate_end": -1e-9}, "--learning-rate-end -1e-09 must not be negative"),
        ({"optimizer_decay": 1.0}, "--optimizer-decay 1.0"),
        ({"n_step": 0}, "--n-step 0 must be at least 1"),
        ({"width": 0}, "--width 0 must lie between 1 and 64"),
        ({"method": "iqn", "iqn_samples": 0}, "--iqn-samples 0 must lie between 1 and 4_096"),
        ({"method": "iqn", "iqn_policy_samples": 0}, "--iqn-policy-samples 0 must lie between 1 and 4_096"),
        ({"priority_exponent": -0.1}, "--priority-exponent -0.1 must lie between 0 and 1"),
        ({"priority_exponent": 1.1}, "--priority-exponent 1.1 must lie between 0 and 1"),
        ({"priority_exponent": float("nan")}, "--priority-exponent nan must be a finite number"),
        ({"priority_exponent": float("inf")}, "--priority-exponent inf"),
        ({"importance_start": 1.1}, "--importance-start 1.1 must lie between 0 and 1"),
        ({"importance_end": -0.1}, "--importance-end -0.1 must lie between 0 and 1"),
        ({"noisy_std": 0.0}, "--noisy-std 0.0 must be above 0 and at most 100"),
        ({"munchausen_temperature": 0.0}, "--munchausen-temperature 0.0 must be above 0"),
        ({"munchausen_alpha": -1.0}, "--munchausen-alpha -1.0 must lie between 0 and 1"),
        ({"munchausen_floor": 0.1}, "--munchausen-floor 0.1 must be below 0"),
        ({"munchausen_floor": float("nan")}, "--munchausen-floor nan must be a finite number"),
        ({"clip_gradient": 0.0}, "--clip-gradient 0.0 must be above 0"),
        ({"clip_gradient": float("inf")}, "--clip-gradient inf must be a finite number"),
        ({"epsilon_ladder": -1.0}, "--epsilon-ladder -1.0 must not be negative"),
        ({"v_min": float("-inf"), "method": "c51"}, "--v-min -inf must be a finite number"),
        ({"v_max": float("nan"), "method": "c51"}, "--v-max nan must be a finite number"),
        ({"method": "c51", "atoms": 1}, "--atoms 1 must lie between 2 and 4_096"),
        ({"method": "qr-dqn", "atoms": 5_000}, "--atoms 5_000 must lie between 2 and 4_096"),
        ({"width": 65, "network": "impala"}, "--width 65 must lie between 1 and 64"),
        ({"method": "iqn", "iqn_policy_samples": 5_000}, "--iqn-policy-samples 5_000 must lie between 1 and 4_096"),
        ({"method": "c51", "v_max": 1e30}, "--v-max 1e+30 must lie between -1e+06 and 1e+06"),
        ({"noisy": True, "noisy_std": 1e12}, "--noisy-std 1000000000000.0 must be above 0 and at most 100"),
        ({"learner_ranks": 0}, "--learner-ranks 0 must lie between 1 and 64"),
        ({**ON_POLICY, "trace": 1.5}, "--trace 1.5 must lie between 0 and 1"),
        ({**ON_POLICY, "method": "ppo", "clip_ratio": 0.0}, "--clip-ratio 0.0 must be above 0"),
        (
            {**ON_POLICY, "entropy_weight_end": -1.0, "anneal_steps": 9},
            "--entropy-weight-end -1.0 must not be negative",
        ),
        ({**ON_POLICY, "method": "vtrace", "rho_max": 0.0}, "--rho-max 0.0 must be above 0"),
        ({**ON_POLICY, "method": "a3c", "return_steps": 0}, "--return-steps 0 must be at least 1"),
        ({"frame_size": 1_024, "env": "m:f"}, "--frame-size 1_024 must lie between 4 and 512"),
        ({"frame_stack": 0}, "--frame-stack 0 must lie between 1 and 16"),
    ],
)
def test_a_number_out_of_its_range_is_refused(wrong: dict[str, Any], says: str) -> None:
    assert_refused(validate.settings, Config().with_settings(**wrong), says)


def test_zero_is_not_above_zero_where_torch_flushes_denormals() -> None:
    code = (
        "import torch; torch.set_flush_denormal(True); from shared.config import validate;"
        "from shared.config.settings import Config; validate.settings(Config().with_settings(learning_rate=0.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "--learning-rate 0.0 must be above 0" in done.stderr
