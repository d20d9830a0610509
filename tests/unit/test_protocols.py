"""The table of protocols."""

from __future__ import annotations

from typing import get_args

from shared.config import ProtocolName
from shared.protocols import PROTOCOLS


def test_every_name_of_the_configuration_has_its_protocol() -> None:
    assert set(PROTOCOLS) == set(get_args(ProtocolName))
    assert all(protocol.name == name for name, protocol in PROTOCOLS.items())


def test_rules_are_those_of_the_table() -> None:
    rules = {name: (p.sticky, p.noop_max, p.life_ends_return, p.fire_on_reset) for name, p in PROTOCOLS.items()}
    assert rules == {
        "nature": (0.0, 30, True, False),
        "machado": (0.25, 0, False, False),
        "envpool": (0.0, 30, True, True),
    }
    assert [p.action_set for p in PROTOCOLS.values()] == ["minimal", "full", "minimal"]
    assert {p.longest_episode_frames for p in PROTOCOLS.values()} == {108_000}
    assert [(p.eval_episodes, p.eval_epsilon) for p in PROTOCOLS.values()] == [(30, 0.05), (100, 0.001), (30, 0.05)]
