"""Parcels: what was packed is read, and nothing else is."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from ringside.cluster.parcel import ParcelError, capture_lane, pack, restore_lane, unpack
from shared.memory.run_memory import Memory
from shared.memory.snapshot import ENV_BYTES
from tests.support.remote_world import LANE_ENVS, ROUND_TICKS, make_plan

SENT = {1: 20, 3: 20}
Change = Callable[[Any], object]
"""From the lanes of a parcel to others."""


@pytest.fixture
def memory() -> Memory:
    """Region in which lanes 1 and 3 have played two rounds, and the ring is full of noise."""
    memory = Memory.create(make_plan(1))
    random = np.random.default_rng(1)
    for name, view in memory.ring.field.items():
        view[:] = random.integers(0, 2 if name in ("start", "valid") else 99, view.shape)
    for lane in SENT:
        memory.lane_snapshots.write(lane, 2, bytes([lane]) * 1000)
        memory.board.lane_finished.publish(lane, 2)
        memory.board.lane_done.publish(lane, 2 * ROUND_TICKS)
    return memory


def lanes_in(parcel: bytes) -> Any:
    return msgspec.msgpack.decode(zstandard.decompress(parcel[32:]))


def forged(lanes: object) -> bytes:
    """A parcel with these lanes, and the right checksum."""
    frame = zstandard.compress(msgspec.msgpack.encode(lanes))
    return hashlib.sha256(frame).digest() + frame


def test_ticks_come_as_they_were_played(memory: Memory) -> None:
    found = unpack(memory, SENT, pack(memory, SENT))
    assert [(each.lane, each.first, each.last) for each in found] == [(1, 20, 34), (3, 20, 34)]
    capacity = memory.run_schedule.capacity
    for each in found:
        for name, ring in memory.ring.field.items():
            begin = 21 if name in ("frame", "start", "valid") else 20
            assert each.fields[name] == ring[each.lane, np.arange(begin, begin + 14) % capacity].tobytes()
        assert each.snapshot == bytes([each.lane]) * 1000


def test_a_part_of_a_round_has_no_snapshot_and_ends_before_the_boundary(memory: Memory) -> None:
    memory.board.lane_done.publish(1, 25)
    memory.board.lane_finished.publish(1, 1)
    memory.board.lane_finished.publish(3, 1)  # its last tick is done, its snapshot is not written yet
    found = unpack(memory, SENT, pack(memory, SENT))
    assert [(each.lane, each.last, each.snapshot) for each in found] == [(1, 25, None), (3, 33, None)]


def test_the_beginning_of_a_lane_is_a_frame_and_a_snapshot(memory: Memory) -> None:
    memory.lane_snapshots.write(0, 0, b"begun")
    memory.board.lane_finished.publish(0, 0)
    (found,) = unpack(memory, {0: -1}, pack(memory, {0: -1}))
    assert (found.first, found.last, found.snapshot) == (-1, 0, b"begun")
    assert {name for name, data in found.fields.items() if data} == {"frame", "start", "valid"}
    assert found.fields["frame"] == memory.ring.field["frame"][0, 0].tobytes()


def test_the_state_of_a_lane_has_the_frames_of_its_first_stack_and_the_logged_actions(memory: Memory) -> None:
    memory.board.lane_logged.publish(1, 40)
    group = Memory.create(memory.plan, [1])
    restore_lane(group, capture_lane(memory, 1))
    for name, ticks in (("frame", range(31, 35)), ("action", range(34, 40))):
        slots = np.array(ticks) % memory.run_schedule.capacity
        assert np.array_equal(group.ring.field[name][1, slots], memory.ring.field[name][1, slots])
    assert group.lane_snapshots.read(1, 2) == bytes([1]) * 1000
    board = group.board
    assert [each.values[1] for each in (board.lane_logged, board.lane_done, board.lane_finished)] == [40, 34, 2]


def test_nothing_played_is_an_empty_parcel(memory: Memory) -> None:
    assert (pack(memory, {1: 34, 2: -1}), unpack(memory, {1: 34}, b"")) == (b"", [])


def test_no_changed_or_missing_byte_is_accepted(memory: Memory) -> None:
    parcel = pack(memory, SENT)
    places = [*range(0, 400, 3), *range(400, len(parcel), 97)]
    flipped = (parcel[:place] + bytes([parcel[place] ^ 4]) + parcel[place + 1 :] for place in places)
    cut_off = (parcel[:length] for length in (1, 3, 4, 50, len(parcel) - 1))
    for damaged in (*flipped, *cut_off, parcel + b"0"):
        with pytest.raises(ParcelError):
            unpack(memory, SENT, damaged)


def changed(**fields: object) -> Change:
    """Change of the first lane."""
    return lambda lanes: [lanes[0] | fields, *lanes[1:]]


FORGED = [
    lambda lanes: [lanes[0], lanes[0]],
    *(lambda lanes, other=other: other for other in ("lanes", None, 7)),
    *(changed(lane=lane) for lane in (2, -1, "1")),
    *(changed(first=first) for first in (19, 20.5, None)),
    *(changed(last=last) for last in (20, 33, 35)),
    lambda lanes: changed(
        last=35, snapshot=None, fields={n: d + d[: len(d) // 14] for n, d in lanes[0]["fields"].items()}
    )(lanes),
    changed(snapshot=None),
    changed(snapshot=bytes(LANE_ENVS * ENV_BYTES + 1)),
    changed(fields={}),
    lambda lanes: changed(fields=lanes[0]["fields"] | {"action": b"1"})(lanes),
    lambda lanes: changed(fields=lanes[0]["fields"] | {"other": b""})(lanes),
]


@pytest.mark.parametrize("change", FORGED)
def test_forged_lanes_are_refused(memory: Memory, change: Change) -> None:
    lanes = lanes_in(pack(memory, SENT))
    assert len(unpack(memory, SENT, forged(lanes))) == 2
    with pytest.raises(ParcelError):
        unpack(memory, SENT, forged(change(lanes)))


def test_a_snapshot_within_a_round_is_refused(memory: Memory) -> None:
    memory.board.lane_done.publish(1, 25)
    memory.board.lane_finished.publish(1, 1)
    (lane,) = lanes_in(pack(memory, {1: 20}))
    with pytest.raises(ParcelError, match="one that is not due"):
        unpack(memory, {1: 20}, forged([lane | {"snapshot": b"1"}]))


def test_a_frame_that_would_be_large_is_refused_before_it_is_made(memory: Memory) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    with pytest.raises(ParcelError, match="has more than"):
        unpack(memory, SENT, hashlib.sha256(bomb).digest() + bomb)
