"""The layout of the shared region. It changes only where a field is meant to change."""

from __future__ import annotations

import os
from typing import Any

import pytest

from shared.checkpoint.segments import segment_shape
from shared.config.method_declaration import MethodDeclaration
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.frame_shape import DEFAULT_FRAMES
from shared.memory.region.layout import Layout
from shared.memory.ring import SLOT_FIELDS, slot_fields
from shared.memory.run_memory import Memory, Plan
from shared.memory.snapshot import LANE_DATA
from tests.support import sampled_method

ACTIONS = 4
MACHINE = {"actors": 3, "inference_batch": 32, "device": "cpu", "eval_episodes": 30}


@pytest.mark.parametrize(
    ("preset", "settings", "digest"),
    [
        ("nature", {}, "b37fbccb3f567aa41e53fb3acbe03470b2ecb4ccf51b3888fd5251adc7175215"),
        (
            "nature",
            {"eval_every_steps": 250_000},
            "524cf987a7a99f4528659d63d759528c24a7bba8fe8ed07a50c04a5744b5f2d8",
        ),
        ("nature", {"schedule": "alternate"}, "7e21fb71d653789f0a72c7b10e3b102bd0818ac32a364a4f3cb6745878f53916"),
        ("nature", {"schedule": "free"}, "19a79a6c7112e989409a9fdd85aa5e62ab08712f9ea368de6922cc94ab62df2a"),
        ("rainbow", {"atoms": 51}, "ee246231cc463a3b14956d29c82291c2929aaabd621eb3c32729c986a965d55b"),
        ("btr", {}, "f90a164b13552a91b65008aa27f776f74d59be76b34457f6c5e8bb92d72d153a"),
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
    names = [name for name, _, _ in slot_fields(sampled.method, DEFAULT_FRAMES)]
    assert names == ["frame", "action", "log_prob", *(name for name, _, _ in SLOT_FIELDS[2:])]
    assert list(shapes_in(layout, "ring.")) == names
    assert shapes_in(layout, "ring.")["log_prob"] == (schedule.lanes, schedule.capacity, schedule.lane_envs)
    assert shapes_in(layout, "mail.")["log_prob"] == (schedule.lanes, schedule.lane_envs)
    assert [*shapes_in(layout, "learner_snapshot.")] == ["online", "moment1", "moment2", "number"]
    assert shapes_in(layout, "learner.")["metrics"][1] == len(("loss", "entropy", "updates", "committed_at"))
    assert "mail.log_prob" not in dqn.layout().offsets
    assert dqn.layout().digest() != layout.digest()
    assert segment_shape(schedule).slots == slot_fields(sampled.method, DEFAULT_FRAMES)


def test_a_method_cannot_declare_a_field_of_every_slot() -> None:
    again = MethodDeclaration("again", "their.module:Theirs", slot_fields=(("valid", "u1", ()),))
    with pytest.raises(ConfigError, match="declares the slot field 'valid', which every slot has"):
        slot_fields(again, DEFAULT_FRAMES)


def test_lanes_that_are_not_played_get_no_memory() -> None:
    small = {"replay_size": 800, "learning_starts": 80, "epsilon_steps": 80}
    plan = Plan(plan_of("dqn").config.with_settings(**small), ACTIONS)
    lanes, fields = plan.run_schedule.lanes, plan.layout().offsets
    taken = []
    for played in (None, range(lanes), [1], []):
        memory = Memory.create(plan, played)
        taken.append(os.fstat(memory.arena.fd).st_blocks * 512)
        assert os.fstat(memory.arena.fd).st_size == plan.layout().size
        memory.lane_snapshots.write(0, 0, b"all can be written nevertheless")
        memory.arena.close()
    large = sum(field.nbytes for name, (_, field) in fields.items() if name.startswith("ring.") or name == LANE_DATA)
    assert taken[0] == taken[1] >= plan.layout().size
    assert taken[0] - taken[3] == pytest.approx(large, rel=0.1)
    assert taken[2] - taken[3] == pytest.approx(large / lanes, rel=0.2)
