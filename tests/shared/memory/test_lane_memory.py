"""One lane's part of the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shared.config.settings import Config
from shared.memory.mailbox import Mailbox, request_number
from shared.memory.plan import Plan
from shared.memory.run_memory import LaneMemory, Memory


def region() -> Memory:
    """Memory of three lanes of two envs."""
    settings = {"envs": 6, "lane_envs": 2, "round_steps": 60, "replay_size": 60, "total_steps": 600}
    machine = {"actors": 1, "inference_batch": 6, "device": "cpu", "run_dir": Path()}
    return Memory.create(Plan(Config().with_settings(network="small", **settings, **machine), 4))


def test_a_lane_uses_its_place_in_the_region_and_nothing_else() -> None:
    memory = region()
    lane: LaneMemory = memory.lane(1)
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
    assert board.lane_logged.values.tolist() == [0, 5, 0]
    assert board.lane_done.values.tolist() == [0, 4, 0]
    assert board.lane_finished.values.tolist() == [-1, 3, -1]
    lane.write_snapshot(0, b"state")
    assert [memory.lane_snapshots.newest(place) for place in range(3)] == [-1, 0, -1]
    assert (lane.newest_snapshot(), lane.read_snapshot(0), lane.read_snapshot(1)) == (0, b"state", None)
    assert lane.begin_life() == 1
    assert lane.begin_life() == 2
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
    assert not lane.answered
    assert not lane.cell_asks, "its neighbors in the batch have not asked"
    memory.lane(0).ask(life=0, tick=9)
    memory.lane(1).ask(life=0, tick=9)
    assert lane.cell_asks
    memory.mailbox.answer(np.array([2]), memory.mailbox.request.values[2:].copy(), np.array([[1, 3]], np.uint8))
    assert lane.answered
    assert not memory.lane(0).cell_asks, "one of its neighbors no longer asks"
    assert lane.actions.tolist() == [1, 3]


def test_a_reply_is_to_one_request_of_one_life() -> None:
    memory = region()
    lane, place, actions = memory.lane(1), np.array([1]), np.array([[2, 3]], np.uint8)
    lane.ask(life=0, tick=7)
    numbers = memory.mailbox.request.values[place].copy()
    assert Mailbox.tick_of(numbers).tolist() == [7]
    lane.ask(life=1, tick=7)  # its actor was killed and asks anew, for the same tick
    memory.mailbox.answer(place, numbers, actions)  # which was for the life before
    assert not lane.answered
