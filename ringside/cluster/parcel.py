"""State of lanes on their way to a group, and parcels of what was played on their way back.

A group plays logged actions again, as a restarted actor does. So a lane that was half played elsewhere continues with
the same steps. What was played comes in parcels:

    SHA-256 of the rest | one zstd frame of `LaneTicks` (MessagePack)

A reader knows from its own configuration how large every part must be, and executes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from shared.config.run_schedule import RECURRENT_STATE
from shared.errors import RingsideError
from shared.memory.run_memory import Memory
from shared.memory.snapshot import ENV_BYTES

OPENING = ("frame", "start", "valid")
"""Fields that a tick writes into the slot of the next one."""
_LEVEL = 3
_DIGEST_BYTES = 32
_NAMES_BYTES = 4096
"""More than names and numbers of a lane take."""


class ParcelError(RingsideError):
    """A parcel is damaged, or is not the one that was asked for."""


class LaneState(NamedTuple):
    """State of a lane: the newest snapshot, and the actions that were logged since."""

    lane: int
    boundary: int = -1
    """Boundary of the snapshot; -1: the lane was never opened."""
    snapshot: bytes = b""
    logged: int = 0
    """Ticks whose actions are known."""
    slots: tuple[tuple[str, NDArray[np.int64], NDArray[np.generic]], ...] = ()
    """Fields of the ring with their ticks. Frames and state of an LSTM: those that the first stack needs, the
    boundary's own tick last. Actions and their `log_prob`: from the boundary to `logged`."""


class LaneTicks(msgspec.Struct, frozen=True):
    """Ticks of one lane."""

    lane: int
    first: int
    """First tick of which the results are here; -1: none, only the frame of tick 0."""
    last: int
    """The tick that follows, of which the opening frame is here."""
    fields: dict[str, bytes]
    """Results of ticks [first, last), and the fields of `OPENING` of ticks (first, last]."""
    snapshot: bytes | None
    """State at `last`, where that is a boundary and the group still has it."""


def capture_lane(memory: Memory, lane: int) -> LaneState:
    """State of a lane; for its owner."""
    run_schedule, boundary = memory.run_schedule, memory.lane_snapshots.newest(lane)
    if boundary < 0:
        return LaneState(lane)
    snapshot = memory.lane_snapshots.read(lane, boundary)
    assert snapshot is not None, "a lane's snapshots have no other writer"
    tick = boundary * run_schedule.round_ticks
    logged = max(tick, int(memory.board.lane_logged.values[lane]))
    history = max(run_schedule.frames.stack - 1, run_schedule.history_ticks)
    before, after = np.arange(max(0, tick - history), tick + 1), np.arange(tick, logged)
    wanted = dict.fromkeys((*OPENING, RECURRENT_STATE) if run_schedule.recurrent_units else OPENING, before)
    replies = [(name, after) for name in ("action", *(name for name, _, _ in run_schedule.reply_fields))]
    slots = [
        (name, ticks, memory.ring.field[name][lane][ticks % run_schedule.capacity])
        for name, ticks in (*wanted.items(), *replies)
    ]
    return LaneState(lane, boundary, snapshot, logged, tuple(slots))


def restore_lane(memory: Memory, state: LaneState) -> None:
    """Write the state into a group's region, before its processes start."""
    if state.boundary < 0:
        return
    lane, board = state.lane, memory.board
    for name, ticks, values in state.slots:
        memory.ring.field[name][lane, ticks % memory.run_schedule.capacity] = values
    memory.lane_snapshots.write(lane, state.boundary, state.snapshot)
    board.lane_logged.publish(lane, state.logged)
    board.lane_done.publish(lane, state.boundary * memory.run_schedule.round_ticks)
    board.lane_finished.publish(lane, state.boundary)


def ticks_by_field(memory: Memory, first: int, last: int) -> dict[str, range]:
    """Ticks of each field of the ring in a parcel from tick `first` to `last`."""
    own, following = range(max(0, first), last), range(first + 1, last + 1)
    return {name: following if name in OPENING else own for name in memory.ring.field}


def pack(memory: Memory, sent: Mapping[int, int]) -> bytes:
    """Parcel of the ticks that lanes have played; empty if there are none.

    Args:
        sent: by lane the first tick that the head does not have.
    """
    lanes = []
    for lane, first in sent.items():
        last = _last(memory, lane, first)
        if last <= first:
            continue
        fields = {
            name: memory.ring.field[name][lane][np.arange(ticks.start, ticks.stop) % memory.run_schedule.capacity]
            for name, ticks in ticks_by_field(memory, first, last).items()
        }
        boundary, rest = divmod(last, memory.run_schedule.round_ticks)
        snapshot = None if rest else memory.lane_snapshots.read(lane, boundary)
        lanes.append(LaneTicks(lane, first, last, {name: each.tobytes() for name, each in fields.items()}, snapshot))
    if not lanes:
        return b""
    frame = zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.msgpack.encode(lanes))
    return hashlib.sha256(frame).digest() + frame


def unpack(memory: Memory, sent: Mapping[int, int], parcel: bytes) -> list[LaneTicks]:
    """Content of a parcel; nothing is written. Raises `ParcelError` unless it is whole and the one asked for."""
    if not parcel:
        return []
    frame = parcel[_DIGEST_BYTES:]
    if hashlib.sha256(frame).digest() != parcel[:_DIGEST_BYTES]:
        raise ParcelError("A parcel was changed on its way.")
    slot = sum(view[0, 0].nbytes for view in memory.ring.field.values())
    state = memory.run_schedule.lane_envs * ENV_BYTES
    limit = _NAMES_BYTES + len(sent) * (_NAMES_BYTES + state + slot * (memory.run_schedule.round_ticks + 1))
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= limit:
            raise ParcelError(f"A parcel does not say its size, or has more than {limit} bytes.")
        lanes = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(frame), type=list[LaneTicks])
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise ParcelError(f"A parcel is damaged: {error}") from error
    if len({each.lane for each in lanes}) < len(lanes):
        raise ParcelError("A parcel has a lane twice.")
    for each in lanes:
        _require_asked(memory, sent, each)
    return lanes


def _require_asked(memory: Memory, sent: Mapping[int, int], ticks: LaneTicks) -> None:
    """Raise `ParcelError` unless ticks were asked for, with fields of the right sizes and the state that is due."""
    lane, first, last = ticks.lane, ticks.first, ticks.last
    if sent.get(lane) != first or not first < last <= _limit(memory, first):
        raise ParcelError(f"A parcel has ticks {first} to {last} of lane {lane}, which were not asked for.")
    sizes = {name: len(span) for name, span in ticks_by_field(memory, first, last).items()}
    wanted = {name: count * memory.ring.field[name][lane, 0].nbytes for name, count in sizes.items()}
    if {name: len(data) for name, data in ticks.fields.items()} != wanted:
        raise ParcelError(f"A parcel has fields of lane {lane} that do not hold ticks {first} to {last}.")
    boundary, rest = divmod(last, memory.run_schedule.round_ticks)
    if rest if ticks.snapshot is not None else not rest and memory.board.is_snapshot(boundary):
        raise ParcelError(f"A parcel has no snapshot of lane {lane} at tick {last}, or one that is not due.")
    if len(ticks.snapshot or b"") > memory.run_schedule.lane_envs * ENV_BYTES:
        raise ParcelError(f"A parcel has a snapshot of lane {lane} that is too large.")


def _last(memory: Memory, lane: int, first: int) -> int:
    """The tick up to which a lane can be sent: played, and not beyond the next boundary."""
    finished = memory.board.lane_finished.values[lane]
    if finished < 0:
        return first
    last = min(int(memory.board.lane_done.values[lane]), _limit(memory, first))
    boundary, rest = divmod(last, memory.run_schedule.round_ticks)
    # At a boundary the lane publishes `done` first, then its snapshot, then `finished`.
    return last - 1 if not rest and finished < boundary else last


def _limit(memory: Memory, first: int) -> int:
    """The boundary after tick `first`."""
    ticks = memory.run_schedule.round_ticks
    return (first // ticks + 1) * ticks if first >= 0 else 0
