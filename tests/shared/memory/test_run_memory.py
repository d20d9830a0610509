"""The layout of the shared region. It changes only where a field is meant to change."""

from __future__ import annotations

from typing import Any

import pytest

from shared.checkpoint.segments import segment_shape
from shared.config.method_declaration import MethodDeclaration
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.region.layout import Layout
from shared.memory.ring import SLOT_FIELDS, slot_fields
from shared.memory.run_memory import Plan
from tests.support import sampled_method

ACTIONS = 4
MACHINE = {"actors": 3, "inference_batch": 32, "device": "cpu", "eval_episodes": 30}


@pytest.mark.parametrize(
    ("preset", "settings", "digest"),
    [
        ("nature", {}, "d771dbaf9e3ca7062a1252dca85709140cd9d00f940fc295368a574436f2b6d8"),
        (
            "nature",
            {"eval_every_steps": 250_000},
            "79dd44af00310c570d8c0881a7358d9d4f85889e4aad6be465b1b82e825f1cf9",
        ),
        ("nature", {"schedule": "alternate"}, "f0a37e294f80236ac1c6a34696b1ef6a6edd53b43326d3fba44ce866c371753f"),
        ("nature", {"schedule": "free"}, "a9114f9799badfd41db8d8bea2fa8144b1d7b3822b7cd03db2e62a8abd3d66d2"),
        ("rainbow", {"atoms": 51}, "1335c8d366221f8db6ae197fc0fabd5260f52d4d0133175b8ed88925c3470510"),
        ("btr", {}, "e1a73b799ed0c5211c1a4a8ee3bc3ec292fd71c60fccc2c1d6d1485a53deb934"),
    ],
)
def test_the_layout_of_methods_with_a_replay_is_pinned(preset: Any, settings: dict[str, Any], digest: str) -> None:
    """Names, types, shapes and offsets of all fields. Where one is meant to change, replace the digest."""
    plan = Plan(PRESETS[preset].with_settings(**MACHINE, **settings), ACTIONS)
    assert plan.layout().digest().hex() == digest


def plan_of(method: str) -> Plan:
    settings = {
        "envs": 8,
        "round_steps": 80,
        "batch_size": 16,
        "total_steps": 800,
        "network": "small",
        "inference_batch": 8,
    }
    return Plan(Config().with_settings(**(MACHINE | settings), method=method), ACTIONS)


def shapes_in(layout: Layout, prefix: str) -> dict[str, tuple[int, ...]]:
    return {
        name.removeprefix(prefix): field.shape for name, (_, field) in layout.offsets.items() if name.startswith(prefix)
    }


def test_the_memory_holds_what_the_method_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot fields lie in ring and mailbox, its states in the snapshot, its metrics on the board."""
    sampled_method.register(monkeypatch)
    sampled, dqn = plan_of("sampled"), plan_of("dqn")
    schedule, layout = sampled.run_schedule, sampled.layout()
    names = [name for name, _, _ in slot_fields(sampled.method)]
    assert names == ["frame", "action", "log_prob", *(name for name, _, _ in SLOT_FIELDS[2:])]
    assert list(shapes_in(layout, "ring.")) == names
    assert shapes_in(layout, "ring.")["log_prob"] == (schedule.lanes, schedule.capacity, schedule.lane_envs)
    assert shapes_in(layout, "mail.")["log_prob"] == (schedule.lanes, schedule.lane_envs)
    assert [*shapes_in(layout, "learner_snapshot.")] == ["online", "moment1", "moment2", "number"]
    assert shapes_in(layout, "learner.")["metrics"][1] == len(("loss", "entropy", "updates", "committed_at"))
    assert "mail.log_prob" not in dqn.layout().offsets
    assert dqn.layout().digest() != layout.digest()
    assert segment_shape(schedule).slots == slot_fields(sampled.method)


def test_a_method_cannot_declare_a_field_of_every_slot() -> None:
    again = MethodDeclaration("again", "their.module:Theirs", slot_fields=(("valid", "u1", ()),))
    with pytest.raises(ConfigError, match="declares the slot field 'valid', which every slot has"):
        slot_fields(again)
