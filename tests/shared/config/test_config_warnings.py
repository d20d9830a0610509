"""Settings that are possible and look like a mistake."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.config.validate import config_warnings


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_is_doubted(preset: Any) -> None:
    assert config_warnings(PRESETS[preset]) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
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
            {"total_steps": 500_000},
            "The chance of a random action will only come from 1 to 0.59 in 500_000 steps; --epsilon-steps 450_000 "
            "would bring it to 0.1.",
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
        ({"munchausen_alpha": 0.5}, "--munchausen-alpha 0.5 has no effect: --munchausen is off."),
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


def test_a_note_that_would_say_nothing_is_not_made() -> None:
    """As "from 1 to 1"."""
    settings = {"total_steps": 10_500, "learning_starts": 10_000, "round_steps": 240, "epsilon_steps": 1_000_000}
    assert config_warnings(Config().with_settings(**settings)) == []


def test_a_policy_that_is_sampled_has_no_epsilon_to_doubt() -> None:
    on_policy = Config().with_settings(method="a2c", round_steps=960, batch_size=96, total_steps=500_000)
    assert config_warnings(on_policy) == []


def test_settings_of_a_preset_get_no_warning() -> None:
    assert config_warnings(PRESETS["btr"].with_settings(prioritized=False)) == []
