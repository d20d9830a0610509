"""Configurations of tests, and the refusal of one."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from shared.config import resolve
from shared.config.settings import Config, ResolvedConfig
from shared.errors import ConfigError

ON_POLICY = {"method": "a2c", "round_steps": 960, "batch_size": 96}


def settled(**settings: Any) -> ResolvedConfig:
    """A small configuration for the CPU with nothing left open."""
    small = {"envs": 8, "actors": 2, "inference_batch": 4, "device": "cpu", "precision": "fp32", "learner_members": 1}
    return resolve.resolve(Config().with_settings(**{**small, **settings}))


def assert_refused(check: Callable[[Any], object], setting: object, says: str) -> None:
    """`check` refuses a configuration, or a value, with one short sentence that says this."""
    with pytest.raises(ConfigError) as refused:
        check(setting)
    sentence = str(refused.value)
    assert says in sentence
    assert_sentence(sentence)


def assert_sentence(text: str) -> None:
    """One sentence of moderate length."""
    assert re.fullmatch(r"[^\n]+\.", text), text
    assert len(text) < 400
