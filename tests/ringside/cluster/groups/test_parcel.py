"""Parcels: what was packed is read, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
import zstandard

from ringside.cluster.groups.parcel import ParcelError, pack, unpack
from shared.memory.parts.snapshot import ENV_BYTES
from shared.memory.run_memory import Memory
from tests.support.remote_world import ROUND_TICKS, make_plan

SESSION = "0123456789abcdef"
SENT = {1: 20, 3: 20}


@pytest.fixture
def memory() -> Memory:
    """Region in which lanes 1 and 3 have played two rounds, and the ring is full of noise."""
    memory = Memory.create(make_plan(1))
    random = np.random.default_rng(1)
    for name, view in memory.ring.field.items():
        view[:] = (
            random.integers(0, 2, view.shape) if name in ("start", "valid") else random.integers(0, 99, view.shape)
        )
    for lane in SENT:
        memory.lane_snapshots.write(lane, 2, bytes([lane]) * 1000)
        memory.board.lane_finished.publish(lane, 2)
        memory.board.lane_done.publish(lane, 2 * ROUND_TICKS)
    return memory


def forged(parcel: bytes, **changes: object) -> bytes:
    """A parcel with another header, and the right checksum."""
    (length,) = struct.unpack_from("<I", parcel)
    header = json.loads(parcel[4 : 4 + length]) | changes
    data = json.dumps(header).encode()
    return struct.pack("<I", len(data)) + data + parcel[4 + length :]


def test_ticks_come_as_they_were_played(memory: Memory) -> None:
    found = unpack(memory, SESSION, SENT, pack(memory, SESSION, SENT))
    assert [(each.lane, each.first, each.last) for each in found] == [(1, 20, 34), (3, 20, 34)]
    capacity = memory.run_schedule.capacity
    for each in found:
        for name, values in each.results.items():
            assert np.array_equal(values, memory.ring.field[name][each.lane, np.arange(20, 34) % capacity])
        for name, values in each.opening.items():
            assert np.array_equal(values, memory.ring.field[name][each.lane, np.arange(21, 35) % capacity])
        assert each.snapshot == bytes([each.lane]) * 1000
    assert {*found[0].results, *found[0].opening} == set(memory.ring.field)


def test_a_part_of_a_round_has_no_snapshot_and_ends_before_the_boundary(memory: Memory) -> None:
    memory.board.lane_done.publish(1, 25)
    memory.board.lane_finished.publish(1, 1)
    memory.board.lane_finished.publish(3, 1)  # its last tick is done, its snapshot is not written yet
    found = unpack(memory, SESSION, SENT, pack(memory, SESSION, SENT))
    assert [(each.lane, each.last, each.snapshot) for each in found] == [(1, 25, None), (3, 33, None)]


def test_the_beginning_of_a_lane_is_a_frame_and_a_snapshot(memory: Memory) -> None:
    memory.lane_snapshots.write(0, 0, b"begun")
    memory.board.lane_finished.publish(0, 0)
    (found,) = unpack(memory, SESSION, {0: -1}, pack(memory, SESSION, {0: -1}))
    assert (found.first, found.last, found.snapshot) == (-1, 0, b"begun")
    assert {len(values) for values in found.results.values()} == {0}
    assert np.array_equal(found.opening["frame"][0], memory.ring.field["frame"][0, 0])


def test_nothing_played_is_an_empty_parcel(memory: Memory) -> None:
    assert pack(memory, SESSION, {1: 34, 2: -1}) == b""
    assert unpack(memory, SESSION, {1: 34}, b"") == []


def test_a_late_parcel_of_another_session_is_refused(memory: Memory) -> None:
    with pytest.raises(ParcelError, match="another session"):
        unpack(memory, "f" * 16, SENT, pack(memory, SESSION, SENT))


def test_no_changed_or_missing_byte_is_accepted(memory: Memory) -> None:
    parcel = pack(memory, SESSION, SENT)
    places = [*range(0, 400, 3), *range(400, len(parcel), 97)]
    for place in places:
        changed = bytearray(parcel)
        changed[place] ^= 4
        with pytest.raises(ParcelError):
            unpack(memory, SESSION, SENT, bytes(changed))
    for length in (1, 3, 4, 50, len(parcel) - 1):
        with pytest.raises(ParcelError):
            unpack(memory, SESSION, SENT, parcel[:length])
    with pytest.raises(ParcelError):
        unpack(memory, SESSION, SENT, parcel + b"0")


@pytest.mark.parametrize(
    "lanes",
    [
        [[1, 20, 34, 1000]],
        [[1, 20, 34, 1000], [1, 20, 34, 1000]],
        [[1, 20, 34, 1000], [2, 20, 34, 1000]],
        [[1, 19, 34, 1000], [3, 20, 34, 1000]],
        [[1, 20, 35, -1], [3, 20, 34, 1000]],
        [[1, 20, 20, -1], [3, 20, 34, 1000]],
        [[1, 20, 34, -1], [3, 20, 34, 1000]],
        [[1, 20, 34, 1001], [3, 20, 34, 1000]],
        [[1, 20, 34, 10 * ENV_BYTES], [3, 20, 34, 1000]],
        [[1, 20, 34, -7], [3, 20, 34, 1000]],
        [["1", 20, 34, 1000], [3, 20, 34, 1000]],
        [[1, 20.5, 34, 1000], [3, 20, 34, 1000]],
        [[1, None, 34, 1000], [3, 20, 34, 1000]],
        "lanes",
        None,
        7,
    ],
)
def test_forged_lanes_are_refused(memory: Memory, lanes: object) -> None:
    with pytest.raises(ParcelError):
        unpack(memory, SESSION, SENT, forged(pack(memory, SESSION, SENT), lanes=lanes))


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_parcel_with_fewer_frames_than_lanes_is_refused(memory: Memory, kept: int) -> None:
    parcel = pack(memory, SESSION, SENT)
    (length,) = struct.unpack_from("<I", parcel)
    lengths = json.loads(parcel[4 : 4 + length])["frames"][:kept]
    parcel = parcel[: 4 + length + sum(lengths)]
    digest = hashlib.sha256(parcel[4 + length :]).hexdigest()
    with pytest.raises(ParcelError, match="fewer frames than its lanes need"):
        unpack(memory, SESSION, SENT, forged(parcel, frames=lengths, sha256=digest))


def test_a_frame_that_would_be_large_is_refused_before_it_is_made(memory: Memory) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    header = {
        "session": SESSION,
        "lanes": [[1, 20, 34, 1000]],
        "frames": [len(bomb), 0],
        "sha256": hashlib.sha256(bomb).hexdigest(),
    }
    data = json.dumps(header).encode()
    with pytest.raises(ParcelError, match="does not hold"):
        unpack(memory, SESSION, SENT, struct.pack("<I", len(data)) + data + bomb)
