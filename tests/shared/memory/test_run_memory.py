"""The layout of the shared region. It changes only where a field is meant to change."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shared.checkpoint.segments import segment_of
from shared.config.method_declaration import MethodDeclaration
from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.layout import Layout
from shared.memory.plan import Plan
from shared.memory.ring import SLOT_FIELDS, slot_fields
from shared.memory.run_memory import Memory
from shared.memory.snapshot import LANE_DATA
from tests.support import sampled_method

ACTIONS = 4
MACHINE = {"actors": 3, "inference_batch": 32, "device": "cpu", "eval_episodes": 30}


@pytest.mark.parametrize(
    ("preset", "settings", "digest"),
    [
        ("nature", {}, "01a6272d29f0aed5e50658df8e8c6f70256f165ae11a547156eb80dccbae2711"),
        ("nature", {"eval_every_steps": 250_000}, "42cf26549bd542426fd07e77c1555f2dc04cb534715286c03927923baad7d03c"),
        ("nature", {"schedule": "alternate"}, "ca207d4daf04fff8b8cce097d7e6a995d4d051c623d62ee4dd2d77e9739ff2a9"),
        ("nature", {"schedule": "free"}, "b65a61d93ed69cb37d5868aca5e44b1c1dc6c63699b8187a3eae42bb64118d14"),
        ("rainbow", {"atoms": 51}, "c1eca325ff81491eb7a3d03eafd81a47b979ba9a775b503a2262e5167b6a6ab9"),
        ("btr", {}, "f398595ea0b6966979981a2d82422991d998875a961bc6c5c5ec4d9186113554"),
    ],
)
def test_the_layout_of_methods_with_a_replay_is_pinned(preset: Any, settings: dict[str, Any], digest: str) -> None:
    """Names, types, shapes and offsets of all fields. Where one is meant to change, replace the digest."""
    plan = Plan(PRESETS[preset].with_settings(**MACHINE, **settings), ACTIONS)
    assert plan.layout.digest().hex() == digest


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
    schedule, layout = sampled.run_schedule, sampled.layout
    names = [name for name, _, _ in slot_fields(schedule)]
    assert names == ["frame", "action", "log_prob", *(name for name, _, _ in SLOT_FIELDS[2:])]
    assert list(shapes_in(layout, "ring.")) == names
    assert shapes_in(layout, "ring.")["log_prob"] == (schedule.lanes, schedule.capacity, schedule.lane_envs)
    assert shapes_in(layout, "mail.")["log_prob"] == (schedule.lanes, schedule.lane_envs)
    assert [*shapes_in(layout, "learner_snapshot.")] == ["online", "moment1", "moment2", "number"]
    columns = ("loss", "entropy", "updates", "committed_at", "boundary")
    assert shapes_in(layout, "learner.")["metrics"][1] == len(columns)
    assert "mail.log_prob" not in dqn.layout.offsets
    assert dqn.layout.digest() != layout.digest()
    assert segment_of(schedule, 0).slots == slot_fields(schedule)


def test_a_method_cannot_declare_a_field_of_every_slot() -> None:
    again = MethodDeclaration("again", "their.module:Theirs", slot_fields=(("valid", "u1", ()),))
    with pytest.raises(ConfigError, match="The method again declares the slot field 'valid', which every slot has"):
        slot_fields(replace(plan_of("dqn").run_schedule, method=again))


def test_the_memory_holds_the_state_of_an_lstm() -> None:
    """The lane writes it into its slot with the action: 2 x 64 numbers with the 64 hidden units of `small`."""
    settings = {"method": "a2c", "envs": 16, "round_steps": 96, "batch_size": 96, "network": "small"}
    config = Config().with_settings(**settings, recurrent=True, device="cpu", run_dir="x", eval_every_steps=960)
    plan = Plan(resolve(config), 4)
    schedule, layout = plan.run_schedule, plan.layout
    assert [name for name, _, _ in slot_fields(schedule)][1:4] == ["action", "log_prob", "recurrent_state"]
    assert shapes_in(layout, "ring.")["recurrent_state"] == (8, schedule.capacity, 2, 2, 64)
    assert shapes_in(layout, "mail.")["recurrent_state"] == (8, 2, 2, 64)
    assert shapes_in(layout, "evaluation.")["recurrent_state"] == (2, 8, 2, 64), "of two requests of 8 envs"
    assert segment_of(schedule, 0).slots == slot_fields(schedule)


def test_lanes_that_are_not_played_get_no_memory() -> None:
    small = {"replay_size": 800, "learning_starts": 80, "epsilon_steps": 80}
    plan = Plan(plan_of("dqn").config.with_settings(**small), ACTIONS)
    lanes, fields = plan.run_schedule.lanes, plan.layout.offsets
    taken = []
    for played in (None, range(lanes), [1], []):
        memory = Memory.create(plan, played)
        taken.append(os.fstat(memory.arena.fd).st_blocks * 512)
        assert os.fstat(memory.arena.fd).st_size == plan.layout.size
        memory.lane_snapshots.write(0, 0, b"all can be written nevertheless")
        memory.arena.close()
    large = sum(field.nbytes for name, (_, field) in fields.items() if name.startswith("ring.") or name == LANE_DATA)
    assert taken[0] == taken[1] >= plan.layout.size
    assert taken[0] - taken[3] == pytest.approx(large, rel=0.1)
    assert taken[2] - taken[3] == pytest.approx(large / lanes, rel=0.2)


@pytest.mark.parametrize("actors", range(1, 9))
def test_every_actor_has_lanes_of_every_batch(actors: int) -> None:
    """Two batches of eight lanes: an actor plays those of one while the other is answered."""
    owners = Plan(PRESETS["ppo-quick"].with_settings(**MACHINE | {"actors": actors, "inference_batch": 16}), ACTIONS)
    batches = np.array(owners.first_owners()).reshape(2, 8)
    counts = np.array([np.bincount(batch, minlength=actors) for batch in batches])
    assert counts.min() >= 1
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(counts.sum(axis=0)) <= 1


def test_the_workers_of_a_process_are_neighbors() -> None:
    """It answers those of a batch in one pass."""
    settings = MACHINE | {"actors": 2, "inference_batch": 2}
    plan = Plan(PRESETS["a3c-async"].with_settings(**settings, workers=4), ACTIONS)
    assert plan.first_owners() == [0, 0, 1, 1]
