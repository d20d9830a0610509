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
        ("nature", {}, "9aae7a94787516effc8e69f475e9e056a310236ebcff67610d6aaa2671959ef0"),
        (
            "nature",
            {"eval_every_steps": 250_000},
            "5337c64befd2127ea96cca70c4b88147a67d0eb37ce5bf1851654fc5b0741e2c",
        ),
        ("nature", {"schedule": "alternate"}, "b40a002b83919f1b434bc3e247bf48b409ceec8e987bf807966a0f1aca1d7d23"),
        ("nature", {"schedule": "free"}, "377df6126deb9db798d84d5b9b742ef00ad27768eda0643a1c2cc53c215f0cc6"),
        ("rainbow", {"atoms": 51}, "4a06013f2b049281ba6aa01e8e8074e7e821606ba03c626d81895b32b47091d8"),
        ("btr", {}, "1355eb17a2153702c872fbc489a0840949b2640e4ae53d6f8464798935acd27a"),
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
