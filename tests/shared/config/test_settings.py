"""Configurations: settings by flat name, their types, another method's, JSON, and the digest."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from shared.config import method_declaration as declarations
from shared.config import resolve, validate
from shared.config.method_declaration import C51Settings, QRDQNSettings, method_declaration, method_names
from shared.config.presets import PRESETS
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Config, unused_settings
from shared.errors import ConfigError
from shared.network_spec import network_of
from shared.root import ROOT
from tests.support.configurations import ON_POLICY


def test_json_and_back() -> None:
    config = PRESETS["quick"].with_settings(run_dir="runs/x", actors=3, eval_episodes=None)
    assert config.run.run_dir == Path("runs/x")
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("method", [5, [], ["dqn"], {}, True])
def test_json_with_a_method_that_is_no_name_is_refused_whatever_else_it_holds(method: object) -> None:
    for more in ({}, Config().to_json()):
        with pytest.raises(ConfigError, match="is damaged: method is "):
            Config.from_json({**more, "algorithm": {"method": method}})


OLD = {"machine": Config().to_json()["machine"] | {"learner_threads": 1}}


@pytest.mark.parametrize(
    "spoil", [{"play": {}}, {"play": 3}, {"extra": {}}, {"": 3}, {"run": {"seed": 1, "extra": 2}}, OLD]
)
def test_json_of_another_version_is_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="another version"):
        Config.from_json({**Config().to_json(), **spoil})


def test_recorded_runs_of_the_table_are_read() -> None:
    found = sorted((ROOT / "benchmarks" / "results").glob("*/*/config.json"))
    assert len(found) > 26
    for path in found:
        summary = json.loads(path.with_name("summary.json").read_text())
        assert Config.from_json(json.loads(path.read_text())).digest() == summary["config_digest"]


def test_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="total_step'; did you mean total_steps"):
        Config().with_settings(total_step=5)


OTHERS = [
    ({"atoms": 51}, "--atoms is for --method c51 and qr-dqn; omit it with --method dqn."),
    ({"method": "iqn", "v_min": -1.0}, "--v-min is for --method c51; omit it with --method iqn."),
]


@pytest.mark.parametrize(("given", "says"), OTHERS)
def test_a_setting_of_another_method_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config().with_settings(**given)


def test_another_method_has_its_own_defaults() -> None:
    config = PRESETS["rainbow"].with_settings(v_min=-3.0).with_settings(method="qr-dqn")
    assert config.algorithm.settings == QRDQNSettings(atoms=200)
    assert config.algorithm.n_step == 3
    assert config.with_settings(atoms=9, method="c51").algorithm.settings == C51Settings(atoms=9)
    assert network_of(PRESETS["c51"].with_settings(method="dqn"), 4).atoms == 1


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


FIELDS = [
    (section.name, item.name)
    for section in dataclasses.fields(Config)
    for item in dataclasses.fields(getattr(Config(), section.name))
    if item.name not in ("method", "settings")
]
OWN = [(name, item.name) for name in method_names() for item in dataclasses.fields(method_declaration(name).settings)]


def another(part: object, name: str) -> object:
    """Another value of the setting than in this section."""
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
    names = {name for _, name in FIELDS}
    assert len(names) == len(FIELDS)
    assert names >= MAY_CHANGE_ON_RESUME


@pytest.mark.parametrize(("method", "name"), OWN)
def test_digest_covers_the_settings_of_a_method(method: str, name: str) -> None:
    config = Config().with_settings(method=method)
    assert len({Config().digest(), config.digest()}) == 1 + (method != "dqn")
    changed = config.with_settings(**{name: another(config.algorithm.settings, name)})
    assert changed.digest() != config.digest()
    assert Config.from_json(changed.to_json()) == changed


@pytest.mark.parametrize(("section", "name"), FIELDS)
def test_digest_covers_what_the_weights_depend_on(section: str, name: str) -> None:
    """The experiment is the digest without the arithmetic."""
    changed = Config().with_settings(**{name: another(getattr(Config(), section), name)})
    assert changed != Config()
    assert (changed.digest() == Config().digest()) == (name in MAY_CHANGE_ON_RESUME)
    assert (changed.experiment() == Config().experiment()) == (name in MAY_CHANGE_ON_RESUME | ARITHMETIC)


def test_a_whole_number_is_the_same_setting_as_that_float() -> None:
    whole, point = (Config().with_settings(method="c51", clip_gradient=value, v_max=value) for value in (10, 10.0))
    assert whole.digest() == point.digest()
    assert whole.to_json() == Config.from_json(whole.to_json()).to_json()


def test_the_settings_of_the_arithmetic_are_those_of_the_machine() -> None:
    """A run goes on with others of these, and with no others."""
    devices = {"device", "precision", "acting_device", "acting_precision", "deterministic"}
    assert devices | {"learner_parts", "inference_threads", "inference_batch"} == ARITHMETIC
