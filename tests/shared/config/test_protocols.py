"""The table of protocols."""

from __future__ import annotations

from typing import get_args

from shared.config.protocols import PROTOCOLS, EvalRules, eval_rules
from shared.config.settings import Evaluate, Play, ProtocolName


def test_every_name_of_the_configuration_has_its_protocol() -> None:
    assert set(PROTOCOLS) == set(get_args(ProtocolName))
    assert all(protocol.name == name for name, protocol in PROTOCOLS.items())


def test_rules_are_those_of_the_table() -> None:
    rules = {name: (p.sticky, p.noop_max, p.life_ends_return, p.fire_on_reset) for name, p in PROTOCOLS.items()}
    assert rules == {
        "nature": (0.0, 30, True, False),
        "machado": (0.25, 0, False, False),
        "envpool": (0.0, 30, True, True),
        "dopamine": (0.25, 0, False, False),
        "dqn_zoo": (0.0, 30, True, False),
    }
    assert [p.action_set for p in PROTOCOLS.values()] == ["minimal", "full", *["minimal"] * 3]
    assert {p.longest_episode_frames for p in PROTOCOLS.values()} == {108_000}
    assert [(p.eval_episodes, p.eval_epsilon, p.eval_max_frames) for p in PROTOCOLS.values()] == [
        (30, 0.05, 18_000),
        (100, 0.001, 108_000),
        (30, 0.05, 108_000),
        (30, 0.001, 108_000),
        (30, 0.05, 108_000),
    ]
    by_steps = {name: p.drops_last_episode for name, p in PROTOCOLS.items() if p.eval_steps is not None}
    assert by_steps == {"dopamine": False, "dqn_zoo": True}
    assert {PROTOCOLS[name].eval_steps for name in by_steps} == {125_000}


def test_what_is_said_comes_before_the_protocol() -> None:
    nature, pong = EvalRules(0.05, 18_000), Play(game="pong")
    assert eval_rules(pong, Evaluate()) == nature
    assert eval_rules(pong, Evaluate(eval_epsilon=0.0)) == EvalRules(0.0, 18_000)
    assert eval_rules(pong, Evaluate(eval_max_frames=7)) == EvalRules(0.05, 7)
    assert (nature.max_steps, EvalRules(0.0, 7).max_steps) == (4_500, 2)


def test_frames_of_a_protocol_are_those_of_atari() -> None:
    assert eval_rules(Play(env="tests.support.pixel_game:factory"), Evaluate()) == EvalRules(0.05, 108_000)
