"""The layout of the shared region, which changes only where a field is meant to change; and one lane's part of it."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.checkpoint.segments import segment_of
from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.memory.layout import Layout
from shared.memory.mailbox import Mailbox, request_number
from shared.memory.plan import Plan
from shared.memory.ring import SLOT_FIELDS, slot_fields
from shared.memory.run_memory import Memory
from shared.memory.snapshot import LANE_DATA
from tests.support import sampled_method

ACTIONS = 4
MACHINE = {"actors": 3, "inference_batch": 32, "device": "cpu", "eval_episodes": 30}


DIGESTS = [
    ("nature", {}, "01a6272d29f0aed5e50658df8e8c6f70256f165ae11a547156eb80dccbae2711"),
    ("nature", {"eval_every_steps": 250_000}, "42cf26549bd542426fd07e77c1555f2dc04cb534715286c03927923baad7d03c"),
    ("nature", {"schedule": "alternate"}, "ca207d4daf04fff8b8cce097d7e6a995d4d051c623d62ee4dd2d77e9739ff2a9"),
    ("nature", {"schedule": "free"}, "b65a61d93ed69cb37d5868aca5e44b1c1dc6c63699b8187a3eae42bb64118d14"),
    ("rainbow", {"atoms": 51}, "c1eca325ff81491eb7a3d03eafd81a47b979ba9a775b503a2262e5167b6a6ab9"),
    ("btr", {}, "f398595ea0b6966979981a2d82422991d998875a961bc6c5c5ec4d9186113554"),
]


@pytest.mark.parametrize(("preset", "settings", "digest"), DIGESTS)
def test_the_layout_of_methods_with_a_replay_is_pinned(preset: Any, settings: dict[str, Any], digest: str) -> None:
    """Names, types, shapes and offsets of all fields. Where one is meant to change, replace the digest."""
    config = PRESETS[preset].with_settings(**MACHINE, **settings)
    assert Plan(config, ACTIONS).layout.digest().hex() == digest


def plan_of(method: str) -> Plan:
    settings = {"envs": 8, "round_steps": 80, "batch_size": 16, "total_steps": 800, "inference_batch": 8}
    return Plan(Config().with_settings(**MACHINE | settings, network="small", method=method), ACTIONS)


def shapes_in(layout: Layout, prefix: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the fields whose names begin so, by the rest of their names."""
    offsets = layout.offsets.items()
    return {name.removeprefix(prefix): field.shape for name, (_, field) in offsets if name.startswith(prefix)}


def test_the_memory_holds_what_a_method_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The `log_prob` of its actions lies in ring and mailbox, no target in the snapshot, its metrics on the board."""
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
    assert Plan(PRESETS["a3c-async"].with_settings(**settings, workers=4), ACTIONS).first_owners() == [0, 0, 1, 1]


# One lane's part of the memory


def region() -> Memory:
    """Memory of three lanes of two envs."""
    settings = {"envs": 6, "lane_envs": 2, "round_steps": 60, "replay_size": 60, "total_steps": 600}
    machine = {"actors": 1, "inference_batch": 6, "device": "cpu", "run_dir": Path()}
    return Memory.create(Plan(Config().with_settings(network="small", **settings, **machine), 4))


def test_a_lane_uses_its_place_in_the_region_and_nothing_else() -> None:
    memory = region()
    lane = memory.lane(1)
    assert lane.index == 1
    before = {name: view.copy() for name, view in memory.ring.field.items()}
    for name, view in lane.slot.items():
        view[:] = 1
        assert (memory.ring.field[name][1] == 1).all()
        assert np.array_equal(memory.ring.field[name][[0, 2]], before[name][[0, 2]])
    lane.logged.publish(5)
    lane.done.publish(4)
    lane.finished.publish(3)
    board = memory.board
    published = [each.values.tolist() for each in (board.lane_logged, board.lane_done, board.lane_finished)]
    assert published == [[0, 5, 0], [0, 4, 0], [-1, 3, -1]]
    lane.write_snapshot(0, b"state")
    assert [memory.lane_snapshots.newest(place) for place in range(3)] == [-1, 0, -1]
    assert (lane.newest_snapshot(), lane.read_snapshot(0), lane.read_snapshot(1)) == (0, b"state", None)
    assert (lane.begin_life(), lane.begin_life()) == (1, 2)
    assert board.lane_life.tolist() == [0, 2, 0]
    board.lane_wanted[1] = 7
    assert lane.wanted_owner == 7
    lane.hand_over(7)
    assert board.lane_owner.tolist() == [0, 7, 0]


def test_a_lane_is_answered_at_its_place() -> None:
    memory = region()
    lane = memory.lane(2)
    lane.ask(life=3, tick=9)
    assert memory.mailbox.request.values.tolist() == [0, 0, request_number(3, 9)]
    assert (lane.answered, lane.cell_asks) == (False, False), "its neighbors in the batch have not asked"
    memory.lane(0).ask(life=0, tick=9)
    memory.lane(1).ask(life=0, tick=9)
    assert lane.cell_asks
    memory.mailbox.answer(np.array([2]), memory.mailbox.request.values[2:].copy(), np.array([[1, 3]], np.uint8))
    assert (lane.answered, lane.actions.tolist()) == (True, [1, 3])
    assert not memory.lane(0).cell_asks, "one of its neighbors no longer asks"


def test_a_reply_is_to_one_request_of_one_life() -> None:
    memory = region()
    lane, place, actions = memory.lane(1), np.array([1]), np.array([[2, 3]], np.uint8)
    lane.ask(life=0, tick=7)
    numbers = memory.mailbox.request.values[place].copy()
    assert Mailbox.tick_of(numbers).tolist() == [7]
    lane.ask(life=1, tick=7)  # its actor was killed and asks anew, for the same tick
    memory.mailbox.answer(place, numbers, actions)  # which was for the life before
    assert not lane.answered
