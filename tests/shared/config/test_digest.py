"""The digest of a configuration covers what the weights depend on, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from shared.config.method_declaration import method_declaration, method_names
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Config

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
    """The experiment is the digest without the arithmetic."""
    changed = Config().with_settings(**{name: another(section, name)})
    assert changed != Config()
    assert (changed.digest() == Config().digest()) == (name in MAY_CHANGE_ON_RESUME)
    assert (changed.experiment() == Config().experiment()) == (name in MAY_CHANGE_ON_RESUME | ARITHMETIC)


def test_a_whole_number_is_the_same_setting_as_that_float() -> None:
    whole, point = (Config().with_settings(method="c51", clip_gradient=value, v_max=value) for value in (10, 10.0))
    assert whole.digest() == point.digest()
    assert whole.to_json() == Config.from_json(whole.to_json()).to_json()


def test_the_settings_of_the_arithmetic_are_those_of_the_machine() -> None:
    """A run goes on with others of these, and with no others."""
    assert {
        *("device", "precision", "acting_device", "acting_precision", "deterministic"),
        *("learner_threads", "learner_shards", "inference_threads", "inference_batch"),
    } == ARITHMETIC
