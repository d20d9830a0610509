"""Settings that are possible and look like a mistake."""

from __future__ import annotations

from typing import Any

import pytest

from ringside.run import checks
from shared.config.config_warnings import config_warnings
from shared.config.presets import PRESETS
from shared.config.settings import Config


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_is_doubted(preset: Any) -> None:
    assert config_warnings(PRESETS[preset]) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"env": "ALE/Pong-v5"},
            "ALE/Pong-v5 plays by the rules of Gymnasium, which papers' scores do not follow; --game NAME plays "
            "faster, and by --protocol.",
        ),
        (
            {"total_steps": 5_000, "learning_starts": 1_000},
            "Nothing will be learned: rounds have 9_984 steps, updates begin with round 2, and there are 1. More "
            "--total-steps, or fewer --learning-starts or --round-steps, would change that.",
        ),
        (
            {"total_steps": 10_500, "learning_starts": 1_000, "epsilon_steps": 9_000},
            "The run will play 19_968 steps, not --total-steps 10_500: it ends with a round, and rounds have 9_984 "
            "steps.",
        ),
        ({"priority_exponent": 0.7}, "--priority-exponent 0.7 has no effect: --prioritized is off."),
        ({"importance_start": 0.5}, "--importance-start 0.5 has no effect: --prioritized is off."),
        (
            {"prioritized": True, "importance_steps": 50_000_000, "total_steps": 1_000_000},
            "The exponent of importance weights will only come from 0.4 to 0.41 in 1_000_000 steps; --importance-steps "
            "1_000_000 would bring it to 1.",
        ),
        (
            {"prioritized": True, "total_steps": 30_000_000},
            "The exponent of importance weights will only come from 0.4 to 0.76 in 30_000_000 steps; "
            "--importance-steps 30_000_000 would bring it to 1.",
        ),
        (
            {"total_steps": 500_000},
            "The chance of a random action will only come from 1 to 0.59 in 500_000 steps; --epsilon-steps 450_000 "
            "would bring it to 0.1.",
        ),
        (
            {"learning_rate": 1e-3, "learning_rate_end": 0.0, "anneal_steps": 100_000_000},
            "The learning rate will only come from 0.001 to 0.0005 in 50_000_000 steps; --anneal-steps 50_000_000 "
            "would bring it to 0.",
        ),
        (
            {"learning_rate_end": 0.0, "anneal_steps": 40_000_000},
            "The learning rate is 0 after --anneal-steps 40_000_000: the last 10_000_000 steps learn nothing.",
        ),
        (
            {"optimizer": "adam"},
            "--optimizer adam keeps RMSProp's --optimizer-decay 0.95 and --optimizer-epsilon 0.01; usual are 0.999 and "
            "1e-8 to 1.5e-4.",
        ),
        ({"noisy_std": 0.1}, "--noisy-std 0.1 has no effect: --noisy is off."),
        ({"publish_every_updates": 10}, "--publish-every-updates 10 has no effect: --schedule is not free."),
        ({"munchausen_alpha": 0.5}, "--munchausen-alpha 0.5 has no effect: --munchausen is off."),
        ({"epsilon_ladder": 7.0, "envs": 1, "lane_envs": 1}, "--epsilon-ladder 7 has no effect with one emulator."),
        (
            {"method": "c51", "v_min": -0.5, "v_max": 0.5},
            "The clipped rewards of one transition alone reach from -1 to 1, beyond --v-min -0.5 or --v-max 0.5; what "
            "is beyond counts as the support's end.",
        ),
        (
            {"method": "c51", "v_min": -2.0, "v_max": 10.0, "n_step": 3, "discount": 1.0},
            "The clipped rewards of one transition alone reach from -3 to 3, beyond --v-min -2 or --v-max 10; what is "
            "beyond counts as the support's end.",
        ),
        (
            {"method": "c51", "clip_rewards": False, "v_min": -10.0},
            "Rewards are not clipped: returns beyond --v-min -10 or --v-max 10 would count as the support's end.",
        ),
        (
            {"method": "pqn", "round_steps": 960, "batch_size": 96, "total_steps": 400_000},
            "The chance of a random action will only come from 1 to 0.64 in 400_000 steps; --epsilon-steps 400_000 "
            "would bring it to 0.1.",
        ),
    ],
)
def test_a_likely_mistake_gets_a_warning(settings: dict[str, Any], says: str) -> None:
    assert config_warnings(Config().with_settings(**settings)) == [says]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"env": "ALE/Pong-v5"}, []),
        ({"prioritized": True, "total_steps": 1_000_000, "importance_steps": 50_000_000}, []),
        ({"learning_rate_end": 0.0, "anneal_steps": 100_000_000}, []),
        ({"total_steps": 500_000}, []),
        (
            {"total_steps": 5_000, "learning_starts": 1_000},
            [
                "Nothing will be learned: rounds have 9_984 steps, updates begin with round 2, and there are 1. More "
                "--total-steps would change that."
            ],
        ),
        (
            {"learning_rate_end": 0.0, "anneal_steps": 40_000_000},
            ["The learning rate is 0 after --anneal-steps 40_000_000: the last 10_000_000 steps learn nothing."],
        ),
    ],
)
def test_a_resume_is_advised_nothing_that_it_refuses(settings: dict[str, Any], says: list[str]) -> None:
    assert config_warnings(Config().with_settings(resume="runs/pong", **settings)) == says


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": 1e-3, "learning_rate_end": 0.0, "anneal_steps": 1_000_000_000, "total_steps": 1_000_000},
        {"prioritized": True, "total_steps": 100_000, "epsilon_steps": 50_000},
    ],
)
def test_a_note_that_would_say_nothing_is_not_made(settings: dict[str, Any]) -> None:
    """As "from 0.001 to 0.001"."""
    assert config_warnings(Config().with_settings(**settings)) == []


def test_a_policy_that_is_sampled_has_no_epsilon_to_doubt() -> None:
    on_policy = Config().with_settings(method="a2c", round_steps=960, batch_size=96, total_steps=500_000)
    assert config_warnings(on_policy) == []


def test_settings_of_a_preset_get_no_warning() -> None:
    assert config_warnings(PRESETS["btr"].with_settings(prioritized=False)) == []


def test_a_support_that_was_said_is_meant_for_the_rewards() -> None:
    assert config_warnings(Config().with_settings(method="c51", clip_rewards=False, v_min=-100.0, v_max=100.0)) == []


def test_a_doubt_is_a_warning_and_refuses_nothing() -> None:
    answers = checks.settings(["Odd.", "Odder."])
    assert [(answer.color, answer.sentence) for answer in answers] == [("yellow", "Odd."), ("yellow", "Odder.")]
    checks.refuse(answers)
    assert [answer.color for answer in checks.settings([])] == ["green"]
