"""Presets: they run, no two are the same, and they are the published numbers."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from ringside.run import planning
from shared.config import validate
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.protocols import EvalRules, eval_rules
from shared.config.settings import Config
from shared.network_spec import Network


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sound(name: Any) -> None:
    config = PRESETS[name]
    validate.settings(config)
    assert validate.config_warnings(config) == []
    assert Config.from_json(config.to_json()) == config
    ready = planning.check(config.with_settings(device="cpu", precision="fp32"))
    assert Network.from_json(json.loads(json.dumps(asdict(ready.network)))) == ready.network


def test_no_two_presets_are_the_same() -> None:
    assert len({config.digest() for config in PRESETS.values()}) == len(PRESETS)


def test_nature_is_the_published_table() -> None:
    """Mnih et al. 2015, Extended Data Table 1."""
    learn, explore = PRESETS["nature"].learn, PRESETS["nature"].explore
    assert (learn.batch_size, learn.replay_size, learn.round_steps, learn.train_every) == (32, 1_000_000, 10_000, 4)
    assert (learn.discount, learn.learning_starts, learn.total_steps) == (0.99, 50_000, 50_000_000)
    assert (learn.optimizer, learn.learning_rate) == ("rmsprop", 0.00025)
    assert (learn.optimizer_decay, learn.optimizer_epsilon) == (0.95, 0.01)
    assert (explore.epsilon_start, explore.epsilon_end, explore.epsilon_steps) == (1.0, 0.1, 1_000_000)
    rules = eval_rules(PRESETS["nature"].play, PRESETS["nature"].evaluate, method_declaration("dqn"))
    assert rules == EvalRules(epsilon=0.05, max_frames=18_000)


ADAM = {"optimizer": "adam", "optimizer_decay": 0.999}
NO_EPSILON = {"epsilon_start": 0.0, "epsilon_end": 0.0, "epsilon_steps": 0}
LONG = {"eval_max_frames": 108_000}
"""30 minutes."""
ALMOST_GREEDY = LONG | {"eval_epsilon": 0.001}
SUPPORT = {"atoms": 51, "v_min": -10.0, "v_max": 10.0, "c51_priority": "divergence"}
CRITIC = {"value_weight": 0.5, "entropy_weight": 0.01}
RMS = {"optimizer": "rms", "optimizer_decay": 0.99}
"""Not centered."""

WORKERS = RMS | LONG | {"schedule": "ordered", "workers": 16, "lane_envs": 1, "t_max": 5, "network": "a3c"}
WORKERS |= {"learning_rate": 7e-4, "learning_rate_end": 0.0, "optimizer_epsilon": 0.1}
WORKERS |= dict.fromkeys(("total_steps", "anneal_steps"), 80_000_000)
WORKERS_OF_VALUES = WORKERS | {"epsilon_by_worker": True, "round_steps": 10_000}

ATARI_100K = ADAM | {"protocol": "atari100k", "envs": 1, "lane_envs": 1, "schedule": "alternate"}
ATARI_100K |= {"total_steps": 100_000, "train_every": 1, "replay_size": 100_000, "learning_starts": 1_600}
ATARI_100K |= {"double": True, "dueling": True, "learning_rate": 1e-4, "optimizer_epsilon": 1.5e-4, "precision": "fp32"}
DER = ATARI_100K | SUPPORT | {"method": "c51", "noisy": True, "noisy_std": 0.1, "prioritized": True}
DER |= {"c51_priority": "cross-entropy"}


PUBLISHED: dict[str, dict[str, Any]] = {
    "double": {"round_steps": 30_000, "double": True, "epsilon_end": 0.01, **ALMOST_GREEDY},
    "dueling": {"round_steps": 30_000, "double": True, "dueling": True, "clip_gradient": 10.0, "epsilon_end": 0.01}
    | {"learning_rate": 6.25e-5, "optimizer_epsilon": 0.000625, **ALMOST_GREEDY},
    "c51": {"method": "c51", "epsilon_end": 0.01, "optimizer_epsilon": 0.0003125, **SUPPORT, **ALMOST_GREEDY, **ADAM},
    "rainbow": {"learning_starts": 20_000, "round_steps": 8_000, "learning_rate": 6.25e-5, "optimizer_epsilon": 1.5e-4}
    | {"method": "c51", "double": True, "dueling": True, "noisy": True, "noisy_std": 0.5, **SUPPORT, **LONG, **ADAM}
    | {"n_step": 3, "prioritized": True, "priority_exponent": 0.5, "importance_start": 0.4, "importance_end": 1.0}
    | {"importance_steps": 50_000_000, **NO_EPSILON, "eval_epsilon": 0.0},
    "der": {**DER, "learner_parts": 1, "round_steps": 2_000, "network": "der", "n_step": 20, "clip_gradient": 10.0}
    | {"priority_exponent": 0.5, "importance_start": 0.4, "importance_end": 1.0, "importance_steps": 100_000}
    | NO_EPSILON,
    "der-dopamine": {**DER, "learner_parts": 4, "round_steps": 2_000, "n_step": 10, "priority_exponent": 0.5}
    | {"importance_start": 0.5, "importance_end": 0.5, "importance_steps": 100_000}
    | {"epsilon_start": 0.01, "epsilon_end": 0.01, "epsilon_steps": 0},
    "drq": {**ATARI_100K, "learner_parts": 4, "round_steps": 1, "n_step": 10, "augment": True}
    | {"epsilon_end": 0.01, "epsilon_steps": 5_000},
    "qr-dqn": {"method": "qr-dqn", "atoms": 200, "learning_rate": 5e-5, "epsilon_end": 0.01}
    | {"optimizer_epsilon": 0.0003125, **ALMOST_GREEDY, **ADAM},
    "iqn": {"method": "iqn", "iqn_samples": 64, "iqn_policy_samples": 32, "learning_rate": 5e-5, "epsilon_end": 0.01}
    | {"optimizer_epsilon": 0.0003125, **ALMOST_GREEDY, **ADAM},
    "btr": {"envs": 64, "lane_envs": 2, "protocol": "machado", "train_every": 64, "batch_size": 256, "discount": 0.997}
    | {"replay_size": 1_048_576, "learning_starts": 200_000, "round_steps": 32_000, "learning_rate": 1e-4}
    | {"optimizer_epsilon": 1.953125e-05, "network": "impala", "width": 2, "pooling": True, "spectral_norm": True}
    | {"method": "iqn", "iqn_samples": 8, "iqn_policy_samples": 8, "dueling": True, "noisy": True, "noisy_std": 0.5}
    | {"n_step": 3, "prioritized": True, "priority_exponent": 0.2, "importance_start": 0.2, "importance_end": 0.2}
    | {"munchausen": True, "munchausen_alpha": 0.9, "munchausen_temperature": 0.03, "munchausen_floor": -1.0}
    | {"clip_gradient": 10.0, "epsilon_end": 0.01, "epsilon_steps": 2_000_000, "eval_epsilon": 0.01, **LONG, **ADAM},
    "ppo": {"method": "ppo", "schedule": "alternate", "envs": 8, "lane_envs": 1, "round_steps": 1_024}
    | {"batch_size": 256, "total_steps": 10_000_000, "learning_rate_end": 0.0, "anneal_steps": 10_000_000}
    | {"optimizer_epsilon": 1e-5, "epochs": 4, "trace": 0.95, "clip_ratio": 0.1, "clip_value": True}
    | {"normalize_advantage": True, "clip_gradient": 0.5, **CRITIC, **LONG, **ADAM},
    "a2c": {"method": "a2c", "schedule": "alternate", "envs": 16, "round_steps": 80, "batch_size": 80}
    | {"total_steps": 10_000_000, "learning_rate": 7e-4, "optimizer_epsilon": 1e-5}
    | {"trace": 1.0, "epochs": 1, "clip_gradient": 0.5, **CRITIC, **RMS, **LONG},
    "a3c": {"method": "a3c", "envs": 64, "round_steps": 640, "batch_size": 128, "total_steps": 92_160_000}
    | {"learning_rate": 1e-3, "learning_rate_end": 1e-4, "anneal_steps": 92_160_000, "optimizer_epsilon": 1e-3}
    | {"trace": 1.0, "epochs": 1, "value_weight": 1.0, "entropy_weight": 0.01, "rho_max": 10.0, "return_steps": 5}
    | {**LONG, **ADAM},
    "impala": {"method": "vtrace", "envs": 32, "round_steps": 640, "batch_size": 640, "learning_rate": 6e-4}
    | {"learning_rate_end": 0.0, "anneal_steps": 50_000_000, "optimizer_epsilon": 0.01}
    | {"trace": 1.0, "epochs": 1, "rho_max": 1.0, "c_max": 1.0, "clip_gradient": 0.0625, **CRITIC, **RMS, **LONG},
    "pqn": {"method": "pqn", "schedule": "alternate", "envs": 128, "round_steps": 4_096, "batch_size": 128}
    | {"optimizer": "radam", "optimizer_decay": 0.999, "optimizer_epsilon": 1e-8, "initial": "orthogonal"}
    | {"epochs": 2, "trace": 0.65, "clip_gradient": 10.0, "normalize": "all"}
    | {"epsilon_end": 0.001, "epsilon_steps": 5_000_000, "eval_epsilon": 0.0, **LONG},
    "a3c-async": {**WORKERS, **CRITIC, "method": "a2c", "trace": 1.0, "epochs": 1},
    "nq-async": {**WORKERS_OF_VALUES, "method": "n-step-q"},
    "q-async": {**WORKERS_OF_VALUES, "method": "one-step-q"},
}
"""Settings in which presets differ from Mnih et al. 2015, by the sources that the files of presets name."""


@pytest.mark.parametrize("preset", PUBLISHED)
def test_presets_are_the_published_numbers(preset: str) -> None:
    settings, nature = PRESETS[preset].to_flat(), PRESETS["nature"].to_flat()
    found = {name: value for name, value in settings.items() if value != nature.get(name)}
    expected = {name: value for name, value in PUBLISHED[preset].items() if value != nature.get(name)}
    assert found == pytest.approx(expected)
