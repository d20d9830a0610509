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


RESUMED = {"resume": "runs/pong"}
PQN = {"method": "pqn", "round_steps": 960, "batch_size": 96}
BEGINS_LATE = "Nothing will be learned: rounds have 9_984 steps, updates begin with round 2, and there are 1. More "
RATE_0 = "The learning rate is 0 after --anneal-steps 40_000_000: the last 10_000_000 steps learn nothing."
ENDS_AT_0 = {"learning_rate_end": 0.0, "anneal_steps": 40_000_000}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"total_steps": 5_000, "learning_starts": 1_000},
            BEGINS_LATE + "--total-steps, or fewer --learning-starts or --round-steps, would change that.",
        ),
        (
            {"total_steps": 10_500, "learning_starts": 1_000, "epsilon_steps": 9_000},
            "The run will play 19_968 steps, not --total-steps 10_500: a round has 9_984 steps.",
        ),
        ({"priority_exponent": 0.7}, "--priority-exponent 0.7 has no effect: --prioritized is off."),
        ({"importance_start": 0.5}, "--importance-start 0.5 has no effect: --prioritized is off."),
        ({"noisy_std": 0.1}, "--noisy-std 0.1 has no effect: --noisy is off."),
        ({"munchausen_alpha": 0.5}, "--munchausen-alpha 0.5 has no effect: --munchausen is off."),
        (
            {"total_steps": 500_000},
            "The chance of a random action will only come from 1 to 0.59 in 500_000 steps; --epsilon-steps 450_000 "
            "would bring it to 0.1.",
        ),
        (
            PQN | {"total_steps": 400_000},
            "The chance of a random action will only come from 1 to 0.64 in 400_000 steps; --epsilon-steps 400_000 "
            "would bring it to 0.1.",
        ),
        (ENDS_AT_0, RATE_0),
        (
            {"optimizer": "adam"},
            "--optimizer adam keeps RMSProp's --optimizer-decay 0.95 and --optimizer-epsilon 0.01; usual are 0.999 and "
            "1e-8 to 1.5e-4.",
        ),
        # A resumed run is advised nothing that it refuses.
        (RESUMED | ENDS_AT_0, RATE_0),
        (RESUMED | {"total_steps": 500_000}, None),
        (
            RESUMED | {"total_steps": 5_000, "learning_starts": 1_000},
            BEGINS_LATE + "--total-steps would change that.",
        ),
        # A chance that would go "from 1 to 1", and a policy, which has none.
        ({"total_steps": 10_500, "learning_starts": 10_000, "round_steps": 240}, None),
        (PQN | {"method": "a2c", "total_steps": 500_000}, None),
    ],
)
def test_a_likely_mistake_gets_a_warning(settings: dict[str, Any], says: str | None) -> None:
    assert config_warnings(Config().with_settings(**settings)) == ([] if says is None else [says])


def test_settings_of_a_preset_get_no_warning() -> None:
    assert config_warnings(PRESETS["btr"].with_settings(prioritized=False)) == []
