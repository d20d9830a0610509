"""The table of protocols."""

from typing import get_args

import pytest

from shared.config.method_declaration import A2C, DQN
from shared.config.protocols import PROTOCOLS, EvalRules, acting_in_words, eval_rules
from shared.config.sections import Evaluate, Play, ProtocolName
from shared.errors import ConfigError


def test_every_name_of_the_configuration_has_its_protocol() -> None:
    assert set(PROTOCOLS) == set(get_args(ProtocolName))
    assert all(protocol.name == name for name, protocol in PROTOCOLS.items())


def test_rules_are_those_of_the_table() -> None:
    """The columns are the fields of `Protocol` after the name, in their order."""
    assert {name: tuple(vars(protocol).values())[1:] for name, protocol in PROTOCOLS.items()} == {
        "nature": (0.0, 30, True, False, "minimal", 108_000, 30, 0.05, 18_000, None, "area", False, 1),
        "machado": (0.25, 0, False, False, "full", 108_000, 100, 0.001, 108_000, None, "area", False, 1),
        "envpool": (0.0, 30, True, True, "minimal", 108_000, 30, 0.05, 108_000, None, "area", False, 1),
        "dopamine": (0.25, 0, False, False, "minimal", 108_000, 30, 0.001, 108_000, 125_000, "area", False, 1),
        "dqn_zoo": (0.0, 30, True, False, "minimal", 108_000, 30, 0.05, 108_000, 125_000, "bilinear", True, 1),
        "atari100k": (0.0, 29, True, False, "minimal", 108_000, 100, 0.001, 108_000, None, "area", False, 0),
    }


def test_given_rules_come_before_those_of_the_protocol() -> None:
    given = (Evaluate(), Evaluate(eval_epsilon=0.0), Evaluate(eval_max_frames=7))
    rules = [eval_rules(Play(game="pong"), each, DQN) for each in given]
    assert rules == [EvalRules(0.05, 18_000), EvalRules(0.0, 18_000), EvalRules(0.05, 7)]


def test_frames_of_a_protocol_are_those_of_atari() -> None:
    assert eval_rules(Play(env="tests.support.pixel_game:factory"), Evaluate(), DQN) == EvalRules(0.05, 108_000)


def test_a_policy_is_sampled_without_epsilon_unless_the_user_says_otherwise() -> None:
    pong = Play(game="pong")
    assert eval_rules(pong, Evaluate(), A2C) == EvalRules(0.0, 18_000, "sample")
    assert eval_rules(pong, Evaluate(eval_actions="greedy", eval_epsilon=0.1), A2C) == EvalRules(0.1, 18_000, "greedy")
    assert eval_rules(pong, Evaluate(eval_actions="greedy"), DQN) == eval_rules(pong, Evaluate(), DQN)
    with pytest.raises(ConfigError, match=r"--eval-actions sample draws from a policy, and --method dqn learns action"):
        eval_rules(pong, Evaluate(eval_actions="sample"), DQN)


WORDS = [
    ("greedy", 0.05, "greedy actions and epsilon 0.05"),
    ("greedy", 0.0, "greedy actions and epsilon 0"),
    ("sample", 0.0, "sampled actions"),
    ("sample", 0.01, "sampled actions and epsilon 0.01"),
]


@pytest.mark.parametrize(("actions", "epsilon", "words"), WORDS)
def test_words_for_the_choice_of_actions(actions: str, epsilon: float, words: str) -> None:
    assert acting_in_words(actions, epsilon) == words
