"""Declarations of methods: the built-in ones fit the engine; names that cannot be used are refused."""

import dataclasses
import pickle
import subprocess
import sys
from importlib import import_module

import pytest

from learner.losses.method import Method
from learner.rollout.on_policy_method import OnPolicyMethod
from ringside.command import arguments, doctor, suite, train, tune
from ringside.run import planning
from shared.config import method_declaration as declarations
from shared.config.method_declaration import MethodDeclaration, MethodSettings, add_method
from shared.config.resolve import resolve
from shared.config.settings import TASK_OPTIONS, Config, register_method
from shared.errors import ConfigError
from shared.memory.plan import Plan
from shared.root import ROOT
from shared.text import flag_of

THEIRS = MethodDeclaration("theirs", "their.module:Theirs")


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registry, so that no other test sees what this one registers."""
    monkeypatch.setattr(declarations, "_REGISTRY", dict(declarations._REGISTRY))


@pytest.mark.parametrize("name", ["dqn", "c51", "qr-dqn", "iqn", "a2c", "a3c", "ppo", "pqn", "vtrace"])
def test_a_built_in_declaration_names_a_method_and_what_the_memory_holds(name: str) -> None:
    """On-policy methods have neither target network nor replay buffer, and all but pqn sample their actions."""
    declaration = declarations.method_declaration(name)
    module, _, implementation = declaration.implementation.partition(":")
    on_policy, sampled = name in ("a2c", "a3c", "ppo", "pqn", "vtrace"), name in ("a2c", "a3c", "ppo", "vtrace")
    assert issubclass(getattr(import_module(module), implementation), OnPolicyMethod if on_policy else Method)
    assert declaration.on_policy is on_policy is not declaration.has_target_network
    assert sampled is (declaration.head == "policy_value") is not declaration.has_epsilon
    assert declaration.slot_fields == ((("log_prob", "f4", ()),) if sampled else ())
    assert on_policy or declaration.metrics == ("loss", "mean_q", "gradient_norm", "q_spread")


def test_a_registered_method_has_a_name() -> None:
    add_method(THEIRS)
    add_method(dataclasses.replace(THEIRS))
    assert declarations.method_declaration("theirs") is THEIRS
    known = "a2c a3c c51 dqn iqn n-step-q one-step-q ppo pqn qr-dqn sarsa theirs vtrace"
    assert declarations.method_names() == known.split()


def test_a_name_has_one_method() -> None:
    with pytest.raises(ConfigError, match="There is a method dqn already"):
        add_method(dataclasses.replace(THEIRS, name="dqn"))


@pytest.mark.parametrize("name", ["", "Theirs", "my_method", "-x", "a" * 41, "x\n"])
def test_a_name_that_no_option_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="A method cannot be called"):
        dataclasses.replace(THEIRS, name=name)


@pytest.mark.parametrize("implementation", ["", "module", "module:", ":Class", "module:Class.inner", "a/b:C", "m:C\n"])
def test_an_implementation_that_is_no_dotted_name_is_refused(implementation: str) -> None:
    with pytest.raises(ConfigError, match=r"The method theirs has the implementation .*write module:Class"):
        dataclasses.replace(THEIRS, implementation=implementation)


@pytest.mark.parametrize("metrics", ["loss epsilon", "updates", "frames", "committed_at", "loss loss", "loss My_Loss"])
def test_a_metric_that_records_cannot_hold_is_refused(metrics: str) -> None:
    wrong = metrics.split()[-1]
    with pytest.raises(ConfigError, match=f"The method theirs has a metric '{wrong}': use different names of lower-"):
        dataclasses.replace(THEIRS, metrics=tuple(metrics.split()))


@pytest.mark.parametrize("name", ["seeds", "total_steps"])
def test_a_setting_with_the_flag_of_another_option_is_refused(name: str) -> None:
    settings = dataclasses.make_dataclass("Settings", [(name, int, 3)], bases=(MethodSettings,), frozen=True)
    with pytest.raises(ConfigError, match=f"has a setting {name}, and {flag_of(name)} is an option already"):
        register_method(dataclasses.replace(THEIRS, settings=settings))
    assert "theirs" not in declarations.method_names()


def test_every_option_beside_settings_is_known_to_be_taken() -> None:
    own = {item.name for item in dataclasses.fields(Config)}
    tasks = (arguments.Choices, suite.Options, tune.Options, train.Options, doctor.Options)
    assert {item.name for kind in tasks for item in dataclasses.fields(kind)} - own == TASK_OPTIONS


def test_a_plan_carries_the_declaration_to_processes_that_have_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    add_method(THEIRS)
    config = resolve(Config().with_settings(method="theirs", device="cpu", run_dir="x"))
    sent = pickle.dumps(Plan(config, 4))
    monkeypatch.setattr(declarations, "_REGISTRY", {})
    assert pickle.loads(sent).method == THEIRS


NEAREST = [("qrdqn", "qr-dqn"), ("IQN", "iqn"), ("qr_dqn", "qr-dqn"), ("c5", "c51"), ("dreamer", None)]


@pytest.mark.parametrize(("name", "nearest"), NEAREST)
def test_a_method_without_a_file_is_refused_and_the_nearest_named(name: str, nearest: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        planning.check(Config().with_settings(method=name))
    known = "a2c, a3c, c51, dqn, iqn, n-step-q, one-step-q, ppo, pqn, qr-dqn, sarsa, vtrace"
    says = f"--method {name} is not one of {known}"
    assert str(refused.value) == (f"{says}; did you mean {nearest}?" if nearest else f"{says}.")


def test_looking_for_methods_loads_no_torch() -> None:
    code = (
        "import sys; from ringside.run import planning; from shared.config.settings import Config;"
        "planning.check(Config().with_settings(method='iqn', device='cpu')); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
