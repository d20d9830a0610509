"""Names of envs with arguments: their parts, and the env that they make."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ringside
from actors.env import EnvError
from actors.make_env import is_registered, make_env
from shared.config import validate
from shared.config.sections import Play
from shared.config.settings import Config
from shared.env_name import Value, env_name, parse_env_name, with_kwargs
from shared.errors import ConfigError

MINE = """
from tests.support.pixel_game import Catch
class Sized(Catch):
    def __init__(self, bonus, hard=False):
        super().__init__()
        self.bonus, self.hard = bonus, hard
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + self.bonus, *rest
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_sized.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_sized", raising=False)


def first_reward(name: str) -> float:
    """Reward of one step left, from the first screen of a seed."""
    env = make_env(Play(env=name), seed=1, index=0, training=True)
    frame = np.zeros((84, 84), np.uint8)
    env.reset(0, frame)
    reward = env.step(1, 0, frame).raw_reward
    env.close()
    return reward


@pytest.mark.parametrize(
    ("name", "base", "arguments"),
    [
        ("Id-v0", "Id-v0", {}),
        ("a.b:Id-v0@size=5,lr=1e-3", "a.b:Id-v0", {"size": 5, "lr": 1e-3}),
        (
            "m:f@hard=true,easy=false,mode=none,name=x-y/z",
            "m:f",
            {"hard": True, "easy": False, "mode": None, "name": "x-y/z"},
        ),
        ("m:f@size=-1", "m:f", {"size": -1}),
    ],
)
def test_parts_and_back(name: str, base: str, arguments: dict[str, Value]) -> None:
    assert parse_env_name(name) == (base, arguments)
    assert parse_env_name(env_name(base, **arguments)) == (base, arguments)
    validate.settings(Config().with_settings(env=name))


@pytest.mark.parametrize("name", ["m:f@", "m:f@size", "m:f@size=1,size=2", "m:f@a b=1", "m:f@size=1+a:B"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        parse_env_name(name)


@pytest.mark.parametrize(
    ("env", "kwargs", "named"),
    [
        ("m:f", "size=5,hard=true", "m:f@size=5,hard=true"),
        ("m:f@size=5", "hard=true", "m:f@size=5,hard=true"),
        ("Id-v0", {"size": 5, "rate": 0.5, "hard": True, "mode": None}, "Id-v0@size=5,rate=0.5,hard=true,mode=none"),
        ("Id-v0", {}, "Id-v0"),
    ],
)
def test_further_arguments_become_part_of_the_name(env: str, kwargs: str | dict[str, Value], named: str) -> None:
    assert with_kwargs(env, kwargs) == named
    assert Config().with_settings(env=env, env_kwargs=kwargs) == Config().with_settings(env=named)
    assert Config().with_settings(env=env).with_settings(env_kwargs=kwargs).play.env == named


@pytest.mark.parametrize(
    ("env", "kwargs", "says"),
    [
        (None, "size=5", "--env-kwargs size=5 has no effect without an environment: pass --env, too"),
        ("m:f", "size", "--env-kwargs has the argument 'size': write name=value"),
        ("m:f", "", "--env-kwargs has the argument ''"),
        ("m:f", "size=5+a:B", "--env-kwargs has the argument 'size=5\\+a:B'"),
        ("m:f@size=5", "size=6", "each name once"),
        ("m:f", {"name": "two words"}, "numbers and texts of plain characters"),
        ("m:f", {"name": "5"}, "numbers and texts of plain characters"),
        ("m:f", {"name": "true"}, "numbers and texts of plain characters"),
        ("m:f", {"name": "a,b=1"}, "numbers and texts of plain characters"),
    ],
)
def test_further_arguments_that_cannot_be_named_are_refused(
    env: str | None, kwargs: str | dict[str, Value], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        with_kwargs(env, kwargs)


@pytest.mark.usefixtures("mine")
def test_arguments_reach_the_factory() -> None:
    plain = first_reward("mine_sized:Sized@bonus=3")
    assert first_reward(ringside.env_name("mine_sized:Sized", bonus=3.5, hard=True)) == plain + 0.5
    for name in ("mine_sized:Sized", "mine_sized:Sized@bonus=1,size=2"):
        with pytest.raises(EnvError, match="could not make an environment: TypeError"):
            first_reward(name)


def test_a_registered_env_with_arguments_must_be_named_by_the_user() -> None:
    import gymnasium

    gymnasium.register("Plain-v0", entry_point="tests.support.pixel_game:Catch")
    try:
        assert is_registered("Plain-v0")
        assert not is_registered("Plain-v0@size=1")
    finally:
        del gymnasium.registry["Plain-v0"]
