"""Configuration: names, digest, presets, every refusal, and what is answered for the user."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from ringside import planning
from ringside.doctor import run_directories
from ringside.zoo.catalogue import WEIGHTS, ZOO
from shared.config import method_declaration as declarations
from shared.config import resolve
from shared.config.checks import validate
from shared.config.digest import ADDED, MAY_CHANGE_ON_RESUME, digest_of
from shared.config.method_declaration import C51Settings, QrDqnSettings, method_declaration, method_names
from shared.config.other_libraries import ELSEWHERE
from shared.config.presets import PRESETS
from shared.config.protocols import EvalRules, eval_rules
from shared.config.run_schedule import make_run_schedule
from shared.config.sections import Play
from shared.config.settings import Config, unused_settings
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE
from shared.machine import facts
from shared.memory import memory_need
from shared.memory.ring import ring_fields
from shared.memory.run_memory import Plan
from shared.network_spec import Network, network_of
from shared.performance import allocation

ROOT = Path(__file__).resolve().parents[3]
FIELDS = [
    (section.name, item.name)
    for section in dataclasses.fields(Config)
    for item in dataclasses.fields(getattr(Config(), section.name))
    if item.name not in ("method", "settings")
]
OWN = [(name, item.name) for name in method_names() for item in dataclasses.fields(method_declaration(name).settings)]


def another(section: str, name: str) -> object:
    """Another value of the setting than its default."""
    part = getattr(Config(), section)
    value, kind = getattr(part, name), get_type_hints(type(part))[name]
    kinds = [kind]
    if get_origin(kind) is not Literal:
        kinds = [each for each in get_args(kind) if each is not type(None)] or [kind]
    if get_origin(kinds[0]) is Literal:
        return next(other for other in get_args(kinds[0]) if other != value)
    if kinds[0] is bool:
        return not value
    return (value or 0) + kinds[0](1) if kinds[0] in (int, float) else "another"


def test_flat_names_are_unique() -> None:
    names = [name for _, name in FIELDS]
    assert len(names) == len(set(names))
    assert set(names) >= MAY_CHANGE_ON_RESUME


@pytest.mark.parametrize(("method", "name"), OWN)
def test_digest_covers_the_settings_of_a_method(method: str, name: str) -> None:
    config = Config().with_settings(method=method)
    assert len({Config().digest(), config.digest()}) == 1 + (method != "dqn")
    value = getattr(config.algorithm.settings, name)
    changed = config.with_settings(**{name: not value if isinstance(value, bool) else (value or 0) + 1})
    assert changed.digest() != config.digest()
    assert Config.from_json(changed.to_json()) == changed


@pytest.mark.parametrize(("section", "name"), FIELDS)
def test_digest_covers_what_the_weights_depend_on(section: str, name: str) -> None:
    changed = Config().with_settings(**{name: another(section, name)})
    assert changed != Config()
    assert (changed.digest() == Config().digest()) == (name in MAY_CHANGE_ON_RESUME)


def test_a_configuration_without_the_added_settings_is_the_same_one() -> None:
    """As earlier versions wrote it, with the digest that they gave it."""
    config = PRESETS["quick"].with_settings(seed=3)
    older = config.to_json()
    for section in older.values():
        for name in ADDED.keys() & section.keys():
            del section[name]
    assert Config.from_json(older) == config
    assert digest_of(older) == config.digest()
    assert config.with_settings(frame_stack=3).digest() != config.digest()
    with pytest.raises(ConfigError, match="another version"):
        Config.from_json({**older, "play": {**older["play"], "frames": 4}})


def test_json_and_back() -> None:
    config = PRESETS["quick"].with_settings(run_dir="runs/x", actors=3, eval_episodes=None)
    assert config.run.run_dir == Path("runs/x")
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("method", [5, [], ["dqn"], {}, True])
def test_json_with_a_method_that_is_no_name_is_refused_whatever_else_it_holds(method: object) -> None:
    for more in ({}, Config().to_json()):
        with pytest.raises(ConfigError, match="is damaged: method is "):
            Config.from_json({**more, "algorithm": {"method": method}})


@pytest.mark.parametrize("spoil", [{"play": {}}, {"extra": {}}, {"run": {"seed": 1, "extra": 2}}])
def test_json_of_another_version_is_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="another version"):
        Config.from_json({**Config().to_json(), **spoil})


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
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*{says}"):
        Config().with_settings(**{name: value})


def test_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="total_step'; did you mean total_steps"):
        Config().with_settings(total_step=5)


def test_a_whole_number_may_be_a_float() -> None:
    learn = Config().with_settings(total_steps=1e6, snapshot_every_steps=2e4).learn
    assert (learn.total_steps, learn.snapshot_every_steps) == (1_000_000, 20_000)
    assert type(learn.total_steps) is int
    assert type(Config().with_settings(checkpoint_every_minutes=5).run.checkpoint_every_minutes) is float


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lr", "There is no setting 'lr': pass learning_rate."),
        ("gamma", "There is no setting 'gamma': pass discount."),
        ("num_envs", "There is no setting 'num_envs': pass envs; actors is the number of processes."),
    ],
)
def test_a_name_from_another_library_is_answered_with_ours(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config().with_settings(**{name: 1})
    assert str(error.value) == says


def test_names_from_other_libraries_lead_to_settings_and_are_none() -> None:
    kinds = [method_declaration(name).settings for name in method_names()]
    known = {
        *Config().to_flat(),
        "preset",
        "env_kwargs",
        *(item.name for kind in kinds for item in dataclasses.fields(kind)),
    }
    for name, words in ELSEWHERE.items():
        assert name not in known
        settings = re.findall(r"{(\w+)}", words)
        assert settings
        assert set(settings) <= known, name


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"atoms": 51}, "--atoms is for --method c51 and qr-dqn; omit it with --method dqn."),
        ({"method": "iqn", "v_min": -1.0}, "--v-min is for --method c51; omit it with --method iqn."),
    ],
)
def test_a_setting_of_another_method_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config().with_settings(**given)


def test_another_method_has_its_own_defaults() -> None:
    config = PRESETS["rainbow"].with_settings(v_min=-3.0).with_settings(method="qr-dqn")
    assert config.algorithm.settings == QrDqnSettings(atoms=200)
    assert config.algorithm.n_step == 3
    assert config.with_settings(atoms=9, method="c51").algorithm.settings == C51Settings(atoms=9)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sound(name: Any) -> None:
    config = PRESETS[name]
    validate.settings(config)
    assert Config.from_json(config.to_json()) == config
    ready = planning.check(config.with_settings(device="cpu", precision="fp32"))
    assert Network.from_json(json.loads(json.dumps(ready.network.to_json()))) == ready.network


def test_no_two_presets_are_the_same() -> None:
    assert len({config.digest() for config in PRESETS.values()}) == len(PRESETS)


def test_a_whole_number_is_the_same_setting_as_that_float() -> None:
    whole, point = (Config().with_settings(method="c51", clip_gradient=value, v_max=value) for value in (10, 10.0))
    assert whole.digest() == point.digest()
    assert whole.to_json() == Config.from_json(whole.to_json()).to_json()


@pytest.mark.parametrize("preset", ["c51", "rainbow", "qr-dqn"])
def test_another_method_of_a_preset_has_its_own_published_atoms(preset: str) -> None:
    methods = {"c51": 51, "qr-dqn": 200, "dqn": 1}
    found = {name: network_of(PRESETS[preset].with_settings(method=name), 4).atoms for name in methods}
    assert found == methods


def test_nature_is_the_published_table() -> None:
    """Mnih et al. 2015, Extended Data Table 1."""
    learn, explore = PRESETS["nature"].learn, PRESETS["nature"].explore
    assert (learn.batch_size, learn.replay_size, learn.round_steps, learn.train_every) == (32, 1_000_000, 10_000, 4)
    assert (learn.discount, learn.learning_starts, learn.total_steps) == (0.99, 50_000, 50_000_000)
    assert (learn.optimizer, learn.learning_rate, learn.optimizer_decay, learn.optimizer_epsilon) == (
        "rmsprop",
        0.00025,
        0.95,
        0.01,
    )
    assert (explore.epsilon_start, explore.epsilon_end, explore.epsilon_steps) == (1.0, 0.1, 1_000_000)
    rules = eval_rules(PRESETS["nature"].play, PRESETS["nature"].evaluate, method_declaration("dqn"))
    assert rules == EvalRules(epsilon=0.05, max_frames=18_000)


ADAM = {"optimizer": "adam", "optimizer_decay": 0.999}
LONG = {"eval_max_frames": 108_000}
"""30 minutes."""
ALMOST_GREEDY = LONG | {"eval_epsilon": 0.001}
PUBLISHED: dict[str, dict[str, Any]] = {
    "double": {"round_steps": 30_000, "double": True, "epsilon_end": 0.01} | ALMOST_GREEDY,
    "dueling": {"round_steps": 30_000, "double": True, "dueling": True, "clip_gradient": 10.0, "epsilon_end": 0.01}
    | {"learning_rate": 6.25e-5, "optimizer_epsilon": 0.000625}
    | ALMOST_GREEDY,
    "c51": {
        "method": "c51",
        "atoms": 51,
        "v_min": -10.0,
        "v_max": 10.0,
        "epsilon_end": 0.01,
        "optimizer_epsilon": 0.0003125,
    }
    | ALMOST_GREEDY
    | ADAM,
    "rainbow": {"learning_starts": 20_000, "round_steps": 8_000, "learning_rate": 6.25e-5, "optimizer_epsilon": 1.5e-4}
    | {
        "method": "c51",
        "atoms": 51,
        "v_min": -10.0,
        "v_max": 10.0,
        "double": True,
        "dueling": True,
        "noisy": True,
        "noisy_std": 0.5,
    }
    | {"n_step": 3, "prioritized": True, "priority_exponent": 0.5, "importance_start": 0.4, "importance_end": 1.0}
    | {"importance_steps": 50_000_000}
    | {"epsilon_start": 0.0, "epsilon_end": 0.0, "epsilon_steps": 0, "eval_epsilon": 0.0}
    | LONG
    | ADAM,
    "qr-dqn": {
        "method": "qr-dqn",
        "atoms": 200,
        "learning_rate": 5e-5,
        "optimizer_epsilon": 0.0003125,
        "epsilon_end": 0.01,
    }
    | ALMOST_GREEDY
    | ADAM,
    "iqn": {"method": "iqn", "iqn_samples": 64, "iqn_policy_samples": 32, "learning_rate": 5e-5, "epsilon_end": 0.01}
    | {"optimizer_epsilon": 0.0003125}
    | ALMOST_GREEDY
    | ADAM,
    "btr": {"envs": 64, "lane_envs": 2, "protocol": "machado", "train_every": 64, "batch_size": 256, "discount": 0.997}
    | {"replay_size": 1_048_576, "learning_starts": 200_000, "round_steps": 32_000, "learning_rate": 1e-4}
    | {"optimizer_epsilon": 1.953125e-05, "network": "impala", "width": 2, "pooling": True, "spectral_norm": True}
    | {"method": "iqn", "iqn_samples": 8, "iqn_policy_samples": 8, "dueling": True, "noisy": True, "noisy_std": 0.5}
    | {"n_step": 3, "prioritized": True, "priority_exponent": 0.2, "importance_start": 0.2, "importance_end": 0.2}
    | {"munchausen": True, "munchausen_alpha": 0.9, "munchausen_temperature": 0.03, "munchausen_floor": -1.0}
    | {"clip_gradient": 10.0, "epsilon_end": 0.01, "epsilon_steps": 2_000_000, "eval_epsilon": 0.01}
    | LONG
    | ADAM,
}
"""Settings in which presets differ from Mnih et al. 2015, by the sources that replay_presets.py names."""


@pytest.mark.parametrize("preset", PUBLISHED)
def test_presets_are_the_published_numbers(preset: str) -> None:
    settings, nature = PRESETS[preset].to_flat(), PRESETS["nature"].to_flat()
    found = {name: value for name, value in settings.items() if value != nature.get(name)}
    expected = {name: value for name, value in PUBLISHED[preset].items() if value != nature.get(name)}
    assert found == pytest.approx(expected)


# Refusals


def assert_sentence(text: str) -> None:
    assert re.fullmatch(r"[^\n]+\.", text), text
    assert len(text) < 400


ON_POLICY = {"method": "a2c", "round_steps": 960, "batch_size": 96}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"envs": 0}, "--envs 0 must be at least 1"),
        ({"graph_updates": -1}, "--graph-updates -1 must not be negative"),
        ({"envs": 97}, "--envs 97 cannot be divided into lanes of --lane-envs 2; --lane-envs 1 takes any number"),
        ({"lane_envs": -2}, "--lane-envs -2 must be at least 1"),
        ({"lane_envs": 128, "envs": 96}, "the nearest is --envs 128"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"total_steps": -1}, "--total-steps -1"),
        ({"train_every": 0}, "--train-every 0"),
        ({"actors": 0}, "--actors 0"),
        ({"learner_threads": 0}, "--learner-threads 0"),
        ({"seed": -1}, "--seed -1 must not be negative"),
        ({"checkpoint_every_minutes": float("nan")}, "--checkpoint-every-minutes nan"),
        ({"replay_size": 31}, "--replay-size 31 is smaller than one batch, --batch-size 32"),
        ({"replay_size": 5_000}, "--replay-size 5_000 is smaller than one round, which has 9_984 steps"),
        ({"learning_starts": 60_000, "total_steps": 50_000}, "Nothing would be learned"),
        ({"learning_starts": 31}, "--learning-starts 31 must be at least --batch-size 32"),
        ({"discount": 1.01}, "--discount 1.01 must lie between 0 and 1"),
        ({"epsilon_start": -0.1}, "--epsilon-start -0.1"),
        ({"epsilon_end": float("nan")}, "--epsilon-end nan"),
        ({"eval_epsilon": 1.5}, "--eval-epsilon 1.5 must lie between 0 and 1"),
        ({"eval_max_frames": 0}, "--eval-max-frames 0 must lie between 1 and 4_000_000"),
        ({"epsilon_start": 0.05}, "--epsilon-end 0.1 is more than --epsilon-start 0.05"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0 must be above 0"),
        ({"learning_rate": float("inf")}, "--learning-rate inf"),
        ({"learning_rate_end": -1e-9}, "--learning-rate-end -1e-09 must not be negative"),
        ({"learning_rate_end": 0.0}, "--learning-rate-end 0 needs --anneal-steps, the steps after which it is reached"),
        ({"anneal_steps": 1_000}, "--anneal-steps 1_000 has no effect, since no setting has an end: add --learning-"),
        ({"optimizer_decay": 1.0}, "--optimizer-decay 1.0"),
        ({"resume": "/", "init_from": "/"}, "give one of them"),
        # What came after the DQN of 2015, alone
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
        # and together
        ({"munchausen": True, "double": True}, "--munchausen learns the soft value"),
        ({"munchausen": True, "method": "c51"}, "--munchausen averages over actions"),
        ({"value_rescaling": True, "method": "c51"}, "--value-rescaling changes the scale of returns"),
        ({"method": "c51", "v_min": 3.0, "v_max": 3.0}, "--v-min 3.0 must be below --v-max 3.0"),
        ({"method": "c51", "atoms": 1}, "--atoms 1 must lie between 2 and 4_096"),
        ({"method": "qr-dqn", "atoms": 5_000}, "--atoms 5_000 must lie between 2 and 4_096"),
        ({"width": 2}, "--width, --pooling and --spectral-norm are for --network impala"),
        ({"pooling": True}, "--width, --pooling and --spectral-norm are for --network impala"),
        ({"spectral_norm": True, "network": "small"}, "are for --network impala"),
        ({"normalize": "all", "network": "impala"}, "say --normalize last with --network impala"),
        (
            {"n_step": 625},
            "--n-step 625 is more than the 624 steps that each of --envs 96 has made when learning starts",
        ),
        ({"width": 65, "network": "impala"}, "--width 65 must lie between 1 and 64"),
        ({"method": "iqn", "iqn_policy_samples": 5_000}, "--iqn-policy-samples 5_000 must lie between 1 and 4_096"),
        ({"method": "c51", "v_max": 1e30}, "--v-max 1e+30 must lie between -1e+06 and 1e+06"),
        ({"noisy": True, "noisy_std": 1e12}, "--noisy-std 1000000000000.0 must be above 0 and at most 100"),
        ({"method": "c51", "v_min": 2.0}, "--v-min 2.0 to --v-max 10.0 must hold 0"),
        (
            {"prioritized": True, "clip_rewards": False, "priority_exponent": 1.0},
            "--priority-exponent 1 is too much for errors of up to 1e+07, which these settings allow: with "
            "--replay-size 1_000_000 all priorities beyond 262,144 would be the same. Say --priority-exponent 0.77 or "
            "less, or clip rewards.",
        ),
        (
            {"prioritized": True, "method": "qr-dqn", "priority_exponent": 1.0, "discount": 0.999},
            "errors of up to 4e+05",
        ),
        (
            {"method": "a2c"},
            "--round-steps 10_000 must be a multiple of --envs 96 with --method a2c; the nearest",
        ),
        ({**ON_POLICY, "batch_size": 50}, "--round-steps 960 must be a multiple of --batch-size 50, since every step"),
        (
            {**ON_POLICY, "prioritized": True},
            "--prioritized has no effect with --method a2c, which learns from the newest round and has no replay "
            "buffer: omit it.",
        ),
        (
            {**ON_POLICY, "batch_size": 48, "learner_shards": 49},
            "--learner-shards 49 is more than --batch-size 48",
        ),
        ({"learner_shards": 64}, "--learner-shards 64 is more than --batch-size 32: pass fewer."),
        ({"learner_ranks": 0}, "--learner-ranks 0 must lie between 1 and 64"),
        (
            {"learner_ranks": 2, "learner_shards": 3},
            "--learner-shards 3 cannot be shared evenly by --learner-ranks 2: pass a multiple of 2.",
        ),
        (
            {"learner_ranks": 2, "learner_shards": 4, "batch_size": 34},
            "--batch-size 34 must be a multiple of --learner-shards 4 with --learner-ranks",
        ),
        ({"learner_ranks": 2, "schedule": "free"}, "--learner-ranks 2 are for --schedule concurrent and alternate"),
        ({"learner_ranks": 2, "mps": "on"}, "--mps on cannot be with --learner-ranks 2: omit it."),
        ({**ON_POLICY, "n_step": 3}, "--n-step has no effect with --method a2c, which learns from the newest round"),
        ({**ON_POLICY, "train_every": 8}, "--train-every has no effect with --method a2c"),
        ({**ON_POLICY, "learning_starts": 960}, "--learning-starts has no effect with --method a2c"),
        ({**ON_POLICY, "replay_on": "host"}, "--replay-on has no effect with --method a2c"),
        ({**ON_POLICY, "publish_every_updates": 1}, "--publish-every-updates has no effect with --method a2c"),
        ({**ON_POLICY, "importance_end": 0.5}, "--importance-end has no effect with --method a2c"),
        ({**ON_POLICY, "double": True}, "--double has no effect with --method a2c, which has no target network: omit"),
        ({**ON_POLICY, "munchausen_alpha": 0.5}, "--munchausen-alpha has no effect with --method a2c, which has no"),
        ({**ON_POLICY, "dueling": True}, "--dueling has no effect with --method a2c, which learns a policy and no"),
        (
            {**ON_POLICY, "epsilon_end": 0.0},
            "--epsilon-end has no effect with --method a2c, which samples its actions from its policy: omit it.",
        ),
        ({**ON_POLICY, "schedule": "free"}, "which --schedule free does not keep: say alternate or concurrent"),
        ({**ON_POLICY, "width": 2}, "--width, --pooling and --spectral-norm are for --network impala"),
        (
            {"eval_actions": "sample"},
            "--eval-actions sample draws from a policy, and --method dqn learns action values",
        ),
        ({**ON_POLICY, "trace": 1.5}, "--trace 1.5 must lie between 0 and 1"),
        ({**ON_POLICY, "method": "ppo", "clip_ratio": 0.0}, "--clip-ratio 0.0 must be above 0"),
        ({**ON_POLICY, "method": "ppo", "clip_ratio_end": 0.0}, "--clip-ratio-end 0 needs --anneal-steps"),
        (
            {**ON_POLICY, "entropy_weight_end": -1.0, "anneal_steps": 9},
            "--entropy-weight-end -1.0 must not be negative",
        ),
        ({**ON_POLICY, "method": "vtrace", "rho_max": 0.0}, "--rho-max 0.0 must be above 0"),
        ({**ON_POLICY, "method": "a3c", "return_steps": 0}, "--return-steps 0 must be at least 1"),
        ({**ON_POLICY, "method": "pqn", "epsilon_start": 0.0, "epsilon_end": 0.0}, "Nothing would be explored"),
        ({"epsilon_start": 0.0, "epsilon_end": 0.0}, "Nothing would be explored"),
        ({"importance_start": 0.9, "importance_end": 0.4}, "--importance-start 0.9 is more than --importance-end 0.4"),
        (
            {"epsilon_ladder": 7.0, "epsilon_start": 0.0, "epsilon_end": 0.0, "noisy": True},
            "--epsilon-ladder has no effect with an epsilon of 0",
        ),
        (
            {"recurrent": True},
            "--recurrent has no effect with --method dqn, which learns no policy from whole rounds: omit it.",
        ),
        ({**ON_POLICY, "method": "pqn", "recurrent": True}, "--recurrent has no effect with --method pqn"),
        (
            {**ON_POLICY, "batch_size": 32, "recurrent": True},
            "--batch-size 32 must be a multiple of 10, the ticks of a round of --round-steps 960 with --envs 96, with "
            "--recurrent; the nearest that fits is 30.",
        ),
        (
            {**ON_POLICY, "batch_size": 30, "recurrent": True, "learner_shards": 4},
            "--learner-shards 4 is more than the 3 envs whose rounds are one --batch-size 30 with --recurrent",
        ),
        (
            {**ON_POLICY, "recurrent": True, "learner_ranks": 2},
            "--recurrent is for a learner of one process: omit --learner-ranks 2.",
        ),
        ({"prioritized": True, "replay_size": 20_000_000}, "--replay-size 20_000_000 is more than 16_777_216"),
        ({"frame_size": 63}, "--frame-size 63 must be a multiple of 4; the nearest is 64"),
        ({"frame_size": 32}, "--frame-size 32 is too small for --network nature: 36 is the least"),
        ({"frame_size": 16, "network": "small"}, "--frame-size 16 is too small for --network small: 20 is the least"),
        ({"frame_size": 164}, "--frame-size 164 is more than an Atari screen has: pass 160 or less"),
        ({"frame_size": 1_024, "env": "m:f"}, "--frame-size 1_024 must lie between 4 and 512"),
        ({"frame_color": "rgb"}, "--frame-color rgb is for --env: games of Atari are played in gray"),
        ({"frame_stack": 0}, "--frame-stack 0 must lie between 1 and 16"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate.settings(Config().with_settings(**wrong))
    assert says in str(refused.value)
    assert_sentence(str(refused.value))


def test_another_method_resets_what_has_no_effect_on_it() -> None:
    """So a preset of the DQN family is a start for an on-policy method, too."""
    config = PRESETS["rainbow"].with_settings(method="a2c", round_steps=960, batch_size=96, seed=2)
    validate.settings(config)
    assert (config.algorithm.prioritized, config.algorithm.n_step, config.explore) == (False, 1, Config().explore)
    assert (config.learn.learning_rate, config.run.seed) == (PRESETS["rainbow"].learn.learning_rate, 2)
    assert PRESETS["rainbow"].with_settings(method="iqn").algorithm.prioritized
    double = PRESETS["double"].with_settings(device="cpu", run_dir="x", envs=16, **ON_POLICY)
    assert resolve.resolve(double).evaluate.eval_epsilon == 0.0
    assert resolve.resolve(double.with_settings(eval_epsilon=0.1)).evaluate.eval_epsilon == 0.1


def test_a_method_may_declare_that_it_uses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = dataclasses.replace(method_declaration("a2c"), name="bounded", also_uses=("n_step",))
    monkeypatch.setitem(declarations._REGISTRY, "bounded", bounded)
    validate.settings(Config().with_settings(**ON_POLICY | {"method": "bounded", "n_step": 3}))
    assert "n_step" in unused_settings(method_declaration("a2c")).keys() - unused_settings(bounded).keys()
    assert unused_settings(method_declaration("dqn")).keys() == {"recurrent"}


def test_zero_is_not_above_zero_where_torch_flushes_denormals() -> None:
    code = (
        "import torch; torch.set_flush_denormal(True); from shared.config.checks import validate;"
        "from shared.config.settings import Config; validate.settings(Config().with_settings(learning_rate=0.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "--learning-rate 0.0 must be above 0" in done.stderr


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
    assert Network.from_json(json.loads(json.dumps(network.to_json()))) == network


def test_a_run_may_begin_with_an_agent_of_the_zoo() -> None:
    for name in ("pong", "zoo/pong"):
        found = planning.check(Config().with_settings(game="pong", init_from=name, device="cpu"))
        assert found.config.run.init_from is not None
        assert found.config.run.init_from.samefile(ZOO / "pong" / WEIGHTS)
    with pytest.raises(ConfigError, match=r"--init-from /no/such does not exist.*the zoo are pong"):
        planning.check(Config().with_settings(init_from="/no/such"))


def test_several_steps_go_with_rounds_of_one_tick() -> None:
    """With alternate a round is a tick or few; transitions may reach over its end."""
    validate.settings(Config().with_settings(schedule="alternate", n_step=3))


@pytest.mark.parametrize(
    ("name", "nearest"), [("qrdqn", "qr-dqn"), ("IQN", "iqn"), ("qr_dqn", "qr-dqn"), ("c5", "c51"), ("dreamer", None)]
)
def test_a_method_without_a_file_is_refused_and_the_nearest_named(name: str, nearest: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        planning.check(Config().with_settings(method=name))
    known = "a2c, a3c, c51, dqn, iqn, n-step-q, one-step-q, ppo, pqn, qr-dqn, sarsa, vtrace"
    says = f"--method {name} is not one of {known}"
    assert str(refused.value) == (f"{says}; did you mean {nearest}?" if nearest else f"{says}.")


def test_looking_for_methods_loads_no_torch() -> None:
    code = (
        "import sys; from ringside import planning; from shared.config.settings import Config;"
        "planning.check(Config().with_settings(method='iqn', device='cpu')); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def settled(**settings: Any) -> Config:
    """A small configuration for the CPU with nothing left open."""
    small = {"envs": 8, "actors": 2, "inference_batch": 4, "device": "cpu", "precision": "fp32"}
    return resolve.resolve(Config().with_settings(**{**small, **settings}))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"actors": 5}, "--actors 5 is more than the 4 lanes"),
        ({"envs": 2, "inference_batch": 2}, "--actors 2 is more than the 1 lane of"),
        ({"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
        ({"inference_batch": 6}, "divides --envs 8"),
        ({"precision": "tf32"}, "--precision tf32 is for CUDA"),
        ({"replay_on": "device"}, "--replay-on device is for CUDA"),
        ({"mps": "on"}, "--mps on is for CUDA"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(wrong: dict[str, Any], says: str) -> None:
    validate.resolved(settled())
    with pytest.raises(ConfigError) as refused:
        validate.resolved(settled(**wrong))
    assert says in str(refused.value)
    assert_sentence(str(refused.value))


def test_memory_that_does_not_suffice_says_what_would_fit() -> None:
    plan = Plan(settled(envs=96, inference_batch=32), 4)
    with pytest.raises(ConfigError) as refused:
        memory_need.require_memory(plan, 4_000_000_000)
    said = str(refused.value)
    assert_sentence(said)
    match = re.search(r"--replay-size ([\d_]+) would fit", said)
    assert match
    fits = int(match[1])
    assert 250_000 < fits < 400_000
    memory_need.require_memory(Plan(settled(envs=96, inference_batch=32, replay_size=fits), 4), 4_000_000_000)
    with pytest.raises(ConfigError, match="no replay would fit"):
        memory_need.require_memory(plan, 1_000_000_000)


def test_an_on_policy_run_holds_a_round_beside_the_rings_and_is_told_of_its_steps() -> None:
    own = {steps: memory_need.own_bytes(Plan(settled(method="a2c", round_steps=steps), 4)) for steps in (320, 320_000)}
    assert own[320_000] - own[320] == (320_000 - 320) * 4 * 84 * 84
    with pytest.raises(ConfigError, match=r"only 4\.0 GB are free; fewer --round-steps need less\."):
        memory_need.require_memory(Plan(settled(method="a2c", round_steps=320_000), 4), 4_000_000_000)


def test_a_million_steps_take_at_most_7_2_gb() -> None:
    run_schedule = make_run_schedule(Config())
    assert sum(item.nbytes for item in ring_fields(run_schedule).values()) <= 7.2e9
    assert Plan(settled(envs=96, inference_batch=32), 18).layout().size <= 7.2e9


def test_run_directories(tmp_path: Path) -> None:
    run_directories.run_directory(tmp_path / "new" / "run", continues=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        run_directories.run_directory(tmp_path / "file", continues=False)
    with pytest.raises(ConfigError, match="cannot be written"):
        run_directories.run_directory(tmp_path / "file" / "below", continues=False)
    (tmp_path / CONFIG_FILE).write_text("{}")
    run_directories.run_directory(tmp_path, continues=False)  # of a run that never came to a checkpoint
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint-00000000.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds a run"):
        run_directories.run_directory(tmp_path, continues=False)
    with pytest.raises(ConfigError, match=r"--resume .* --env m:E-v0 --plugin mine\."):
        run_directories.run_directory(tmp_path, continues=False, env="m:E-v0", plugin="mine")
    run_directories.run_directory(tmp_path, continues=True)


# Answers


def test_resolving_answers_everything_and_again_changes_nothing() -> None:
    config = resolve.resolve(Config().with_settings(device="cpu"))
    assert resolve.resolve(config) == config
    assert [name for name, value in vars(config.machine).items() if value is None] == [
        "acting_device",  # as the learner's
        "acting_precision",
        "learner_shards",  # for rounds
    ]
    assert config.machine.precision in ("fp32", "bf16")
    assert config.evaluate.eval_episodes == 30
    assert re.fullmatch(r"runs/breakout-\d{8}-\d{6}", str(config.run.run_dir))
    validate.resolved(config)


def test_actors_change_no_other_answer() -> None:
    few, many = (resolve.resolve(Config().with_settings(device="cpu", actors=n, run_dir="x")) for n in (1, 24))
    assert few.digest() == many.digest()
    assert few.with_settings(actors=24) == many


def test_the_window_holds_an_observation_and_the_steps_behind_it() -> None:
    small = {"envs": 256, "round_steps": 1_024, "learning_starts": 1_024, "replay_size": 1_500, "device": "cpu"}
    assert planning.check(Config().with_settings(**small)).run_schedule.window_ticks == 4
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 6 that an observation with --n-step 3 needs; 1_536 is"):
        planning.check(Config().with_settings(**small, n_step=3))
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 5 that an observation with --n-step 1 needs; 1_280 is"):
        planning.check(Config().with_settings(**small, frame_stack=5))


def test_what_the_user_said_stays() -> None:
    said = {
        "precision": "fp32",
        "learner_threads": 3,
        "inference_threads": 2,
        "inference_batch": 48,
        "eval_episodes": 5,
    }
    config = resolve.resolve(Config().with_settings(device="cpu", **said)).to_json()
    assert {name: value for section in config.values() for name, value in section.items() if name in said} == said


def test_the_inference_server_may_compute_otherwise_than_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 1)
    monkeypatch.setattr(facts, "bf16_flags", lambda: ["amx_bf16"])
    found = {}
    for name, said in {
        "like the learner": {},
        "said, but the same": {"acting_device": "cuda"},
        "on the CPU": {"acting_device": "cpu"},
        "in float32": {"acting_device": "cpu", "acting_precision": "fp32"},
        "on the same device": {"acting_precision": "fp32"},
    }.items():
        machine = resolve.resolve(Config().with_settings(**said)).machine
        found[name] = (machine.acts_on, machine.acts_in, machine.inference_batch)
        assert (machine.device, machine.precision) == ("cuda:0", "tf32")
    assert found == {
        "like the learner": ("cuda:0", "tf32", 96),
        "said, but the same": ("cuda:0", "tf32", 96),
        "on the CPU": ("cpu", "bf16", 32),
        "in float32": ("cpu", "fp32", 32),
        "on the same device": ("cuda:0", "fp32", 96),
    }
    resolved = resolve.resolve(Config().with_settings(acting_device="cpu"))
    assert resolve.resolve(resolved) == resolved
    assert Plan(resolved, 4).batch_lanes_of(0) != Plan(resolve.resolve(Config()), 4).batch_lanes_of(0)


def test_an_acting_precision_that_a_cpu_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="--acting-precision tf32 is for CUDA devices"):
        planning.check(Config().with_settings(device="cpu", acting_precision="tf32"))
    with pytest.raises(ConfigError, match="--acting-device gpu is not one of auto, cpu, cuda and cuda:N"):
        resolve.resolve(Config().with_settings(acting_device="gpu"))
    workers = {"workers": 4, "schedule": "ordered", "method": "a3c", "device": "cpu", "acting_device": "cpu"}
    with pytest.raises(ConfigError, match="omit them with --workers"):
        resolve.resolve(Config().with_settings(**workers))


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 2)
    assert [resolve.device_of(asked) for asked in ("auto", "cpu", "cuda", "cuda:1")] == [
        "cuda:0",
        "cpu",
        "cuda:0",
        "cuda:1",
    ]
    with pytest.raises(ConfigError, match=r"no device cuda:2: the last of 2 is cuda:1"):
        resolve.device_of("cuda:2")
    with pytest.raises(ConfigError, match="--device gpu is not one of auto, cpu, cuda and cuda:N"):
        resolve.device_of("gpu")
    config = resolve.resolve(Config())
    assert (config.machine.precision, config.machine.inference_batch, config.machine.learner_threads) == ("tf32", 96, 1)
    monkeypatch.setattr(facts, "cuda_devices", lambda: 0)
    monkeypatch.setattr(facts, "has_nvidia_driver", lambda: False)
    assert resolve.device_of("auto") == "cpu"
    with pytest.raises(ConfigError, match="no NVIDIA driver"):
        resolve.device_of("cuda")
    monkeypatch.setattr(facts, "has_nvidia_driver", lambda: True)
    monkeypatch.setattr(facts, "torch_cuda_version", lambda: None)
    with pytest.raises(ConfigError, match="built without CUDA"):
        resolve.device_of("cuda:0")


@pytest.mark.parametrize(
    ("envs", "lane_envs", "batch"),
    [
        (96, 2, 32),
        (32, 2, 16),
        (192, 4, 32),
        (8, 2, 4),
        (4, 2, 2),
        (2, 2, 2),
        (1, 1, 1),
        (2, 1, 1),
        (80, 40, 40),
        (14, 2, 2),
    ],
)
def test_inference_batch_divides_and_leaves_two_groups(envs: int, lane_envs: int, batch: int) -> None:
    play = Play(envs=envs, lane_envs=lane_envs)
    assert resolve.inference_batch_of(play, on_cpu=True) == batch
    assert resolve.inference_batch_of(play, on_cpu=False) == envs


@pytest.mark.parametrize(
    ("spare", "actors"), [(-3, 1), (0, 1), (1, 1), (10, 10), (12, 12), (14, 12), (22, 16), (60, 24)]
)
def test_actors_share_48_lanes_evenly(spare: int, actors: int) -> None:
    assert resolve.actors_of(Play(), spare) == actors


@pytest.mark.parametrize(
    ("cores", "threads", "busy"), [(1, 1, 1), (2, 1, 1), (8, 1, 1), (9, 2, 6), (12, 3, 9), (15, 4, 12), (64, 4, 12)]
)
def test_no_thread_of_a_learner_without_a_core_of_its_own(cores: int, threads: int, busy: int) -> None:
    assert allocation.learner_threads_of(cores, None, on_cpu=True) == threads
    assert allocation.learner_threads_of(cores, None, on_cpu=False) == 1
    assert allocation.busy_threads(threads, None, on_cpu=True) == busy <= max(1, cores - 3)
    assert allocation.busy_threads(1, None, on_cpu=False) == 1


@pytest.mark.parametrize(
    ("settings", "actors"),
    [
        ({}, 1),
        ({"schedule": "alternate"}, 4),
        ({"schedule": "alternate", "actors": 3}, 3),
        ({"schedule": "alternate", "envs": 4}, 1),
        (ON_POLICY | {"schedule": "alternate"}, 4),
        (ON_POLICY | {"schedule": "concurrent"}, 1),
    ],
)
def test_actors_have_all_cores_where_they_take_turns_with_the_learner(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], actors: int
) -> None:
    monkeypatch.setattr(facts, "usable_cores", lambda: 4)
    config = Config().with_settings(device="cpu", learner_threads=1, inference_threads=2, **settings)
    assert resolve.resolve(config).machine.actors == actors


@pytest.mark.parametrize(
    ("settings", "shards"),
    [({}, None), ({"batch_size": 256}, None)]
    + [(ON_POLICY | {"batch_size": batch}, shards) for batch, shards in ((32, 1), (128, 2), (200, 3), (1_024, 4))]
    + [(ON_POLICY | {"batch_size": 256, "learner_shards": 7}, 7)],
)
def test_shards_follow_from_the_minibatch_and_not_from_the_cores(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], shards: int | None
) -> None:
    for cores in (1, 64):
        monkeypatch.setattr(facts, "usable_cores", lambda cores=cores: cores)
        config = Config().with_settings(device="cpu", **settings)
        assert resolve.resolve(config).machine.learner_shards == shards
    monkeypatch.setattr(facts, "cuda_devices", lambda: 1)
    on_gpu = resolve.resolve(Config().with_settings(**settings | {"learner_shards": None})).machine
    assert (on_gpu.device, on_gpu.learner_shards) == ("cuda:0", None)


@pytest.mark.parametrize(("ranks", "shards"), [(2, 4), (3, 6), (4, 4), (8, 8)])
def test_ranks_have_shards_that_they_share_evenly(ranks: int, shards: int) -> None:
    for settings in ({}, ON_POLICY):
        config = resolve.resolve(Config().with_settings(device="cpu", learner_ranks=ranks, **settings))
        assert config.machine.learner_shards == shards
        alone = config.with_settings(learner_ranks=1)
        assert resolve.resolve(alone).digest() == config.digest()


def test_defaults_that_ranks_cannot_share_are_refused() -> None:
    config = resolve.resolve(Config().with_settings(device="cpu", learner_ranks=2, batch_size=34))
    with pytest.raises(ConfigError, match="--batch-size 34 must be a multiple of --learner-shards 4"):
        validate.resolved(config)


@pytest.mark.parametrize(("device", "ranks", "enough"), [("cuda", 2, True), ("cuda:1", 1, True), ("cuda:1", 2, False)])
def test_each_rank_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, device: str, ranks: int, enough: bool) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 2)
    config = Config().with_settings(device=device, learner_ranks=ranks)
    if enough:
        assert resolve.resolve(config).machine.learner_ranks == ranks
    else:
        with pytest.raises(ConfigError, match="--learner-ranks 2 need a GPU each from cuda:1 on, and there are 2"):
            resolve.resolve(config)


@pytest.mark.parametrize(("flags", "precision"), [([], "fp32"), (["avx512_bf16"], "bf16"), (["amx_bf16"], "bf16")])
def test_auto_takes_bf16_where_the_processor_has_it_and_a_recorded_run_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], precision: str
) -> None:
    monkeypatch.setattr(facts, "bf16_flags", lambda: flags)
    assert resolve.resolve(Config().with_settings(device="cpu")).machine.precision == precision
    for recorded in ("fp32", "bf16"):
        asked = Config().with_settings(device="cpu", precision=recorded)
        config = Config.from_json(resolve.resolve(asked).to_json())
        assert resolve.resolve(config).machine.precision == recorded


def test_teams_of_threads_follow_from_shards() -> None:
    assert allocation.learner_threads_of(15, 6, on_cpu=True) == 2
    assert allocation.busy_threads(2, 6, on_cpu=True) == 12


def test_one_lane_has_one_actor() -> None:
    assert resolve.actors_of(Play(envs=1, lane_envs=1), 12) == 1
