"""Names of envs with arguments: their parts, and the env that they make."""

from contextlib import closing
from typing import Any

import pytest

import ringside
from actors.env import EnvError
from actors.envs.gymnasium_env import GymnasiumEnv
from shared.config import validate
from shared.config.settings import Config
from shared.env_name import Value, env_name, parse_env_name, with_kwargs
from shared.errors import ConfigError

COLORS = "tests.support.pixel_game:ColorCatch"


PARTS = [
    ("Id-v0", "Id-v0", {}),
    ("a.b:Id-v0@size=5,lr=1e-3", "a.b:Id-v0", {"size": 5, "lr": 1e-3}),
    ("m:f@hard=true,easy=false", "m:f", {"hard": True, "easy": False}),
    ("m:f@mode=none,name=x-y/z", "m:f", {"mode": None, "name": "x-y/z"}),
    ("m:f@size=-1", "m:f", {"size": -1}),
]


@pytest.mark.parametrize(("name", "base", "arguments"), PARTS)
def test_parts_and_back(name: str, base: str, arguments: dict[str, Value]) -> None:
    assert parse_env_name(name) == (base, arguments)
    assert parse_env_name(env_name(base, **arguments)) == (base, arguments)
    validate.settings(Config().with_settings(env=name))


@pytest.mark.parametrize("name", ["m:f@", "m:f@size", "m:f@size=1,size=2", "m:f@a b=1", "m:f@size=1+a:B"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        parse_env_name(name)


FURTHER = [
    ("m:f", "size=5,hard=true", "m:f@size=5,hard=true"),
    ("m:f@size=5", "hard=true", "m:f@size=5,hard=true"),
    ("Id-v0", {"size": 5, "rate": 0.5, "hard": True, "mode": None}, "Id-v0@size=5,rate=0.5,hard=true,mode=none"),
    ("Id-v0", {}, "Id-v0"),
]


@pytest.mark.parametrize(("env", "kwargs", "named"), FURTHER)
def test_further_arguments_become_part_of_the_name(env: str, kwargs: str | dict[str, Value], named: str) -> None:
    assert with_kwargs(env, kwargs) == named
    assert Config().with_settings(env=env, env_kwargs=kwargs) == Config().with_settings(env=named)
    assert Config().with_settings(env=env).with_settings(env_kwargs=kwargs).play.env == named


REFUSED = [
    (None, "size=5", "--env-kwargs size=5 has no effect without an environment: pass --env, too"),
    ("m:f", "size", "--env-kwargs has the argument 'size': write name=value"),
    ("m:f", "", "--env-kwargs has the argument ''"),
    ("m:f", "size=5+a:B", "--env-kwargs has the argument 'size=5\\+a:B'"),
    ("m:f@size=5", "size=6", "each name once"),
    ("m:f", {"name": "two words"}, "numbers and texts of plain characters"),
    ("m:f", {"name": "5"}, "numbers and texts of plain characters"),
    ("m:f", {"name": "true"}, "numbers and texts of plain characters"),
    ("m:f", {"name": "a,b=1"}, "numbers and texts of plain characters"),
    ("m:f", {"a=1,b": 2}, "numbers and texts of plain characters"),
    ("m:f", [1], "env_kwargs \\[1\\] is neither a text nor a mapping"),
]


@pytest.mark.parametrize(("env", "kwargs", "says"), REFUSED)
def test_arguments_that_cannot_be_named_are_refused(env: str | None, kwargs: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_kwargs(env, kwargs)


@pytest.mark.parametrize("name", [f"{COLORS}@side=64", ringside.env_name(COLORS, side=64)])
def test_arguments_reach_the_factory(name: str) -> None:
    with closing(GymnasiumEnv(name, seed=1, index=0)) as env:
        assert env._env.observation_space.shape == (64, 64, 3)
    with pytest.raises(EnvError, match="could not make an environment: TypeError"):
        GymnasiumEnv(f"{name},size=2", seed=1, index=0)
