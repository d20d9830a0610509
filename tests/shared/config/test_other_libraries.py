"""Names of settings in other libraries lead to ours."""

from __future__ import annotations

import dataclasses
import re

import pytest

from shared.config.method_declaration import method_declaration, method_names
from shared.config.other_libraries import ELSEWHERE
from shared.config.settings import Config
from shared.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lr", "There is no setting 'lr': pass learning_rate."),
        ("gamma", "There is no setting 'gamma': pass discount."),
        ("clip_reward", "There is no setting 'clip_reward'; did you mean clip_rewards?"),
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
