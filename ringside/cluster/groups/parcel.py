"""A parcel: ticks that lanes have played, on their way to the head.

    u32 length of the header | header (JSON) | for each lane one zstd frame, and one more where a snapshot is due

A reader knows from its own configuration how large every part must be, checks a SHA-256 over all frames, and executes
nothing. A parcel carries the name of the session for which it was made, so a late one of a lost group is refused.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from ringside.cluster.groups.lane_state import OPENING, result_fields
from shared.errors import RingsideError
from shared.files.strict_json import json_object
from shared.memory.parts.snapshot import ENV_BYTES
from shared.memory.run_memory import Memory

_LEVEL = 3
_LENGTH = struct.Struct("<I")
_MOST_HEADER_BYTES = 1 << 20
_NO_SNAPSHOT = -1


class ParcelError(RingsideError):
    """A parcel is damaged, or is not the one that was asked for."""


class LaneTicks(NamedTuple):
    """Ticks of one lane."""

    lane: int
    first: int
    """First tick of which the results are here; -1: none, only the frame of tick 0."""
    last: int
    """The tick that follows, of which the opening frame is here."""
    results: Mapping[str, NDArray[np.generic]]
    """Fields of ticks [first, last)."""
    opening: Mapping[str, NDArray[np.generic]]
    """Fields of ticks (first, last]."""
    snapshot: bytes | None
    """State at `last`, where that is a boundary and the group still has it."""


def pack(memory: Memory, session: str, sent: Mapping[int, int]) -> bytes:
    """Parcel of the ticks that lanes have played; empty if there are none.

    Args:
        sent: by lane the first tick that the head does not have.
    """
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    entries, frames = [], []
    for lane, first in sent.items():
        last = _last(memory, lane, first)
        if last <= first:
            continue
        views = [*_spans(memory, lane, first, last)]
        frames.append(compressor.compress(b"".join(view.tobytes() for view in views)))
        length, boundary = _NO_SNAPSHOT, _boundary(memory, last)
        data = None if boundary is None else memory.lane_snapshots.read(lane, boundary)
        if data is not None:
            length = len(data)
            frames.append(compressor.compress(data))
        entries.append([lane, first, last, length])
    if not entries:
        return b""
    header = {
        "session": session,
        "lanes": entries,
        "frames": [len(frame) for frame in frames],
        "sha256": _digest(frames),
    }
    data = json.dumps(header).encode()
    return b"".join([_LENGTH.pack(len(data)), data, *frames])


def unpack(memory: Memory, session: str, sent: Mapping[int, int], parcel: bytes) -> list[LaneTicks]:
    """Content of a parcel; nothing is written. Raises `ParcelError` unless it is whole and the one asked for."""
    try:
        return [*_unpack(memory, session, sent, parcel)] if parcel else []
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, zstandard.ZstdError) as error:
        raise ParcelError(f"A parcel is damaged: {error}") from error


def _unpack(memory: Memory, session: str, sent: Mapping[int, int], parcel: bytes) -> Iterator[LaneTicks]:
    (length,) = _LENGTH.unpack_from(parcel)
    if length > _MOST_HEADER_BYTES:
        raise ParcelError(f"A parcel has a header of {length} bytes.")
    begin = _LENGTH.size + length
    header = json_object(parcel[_LENGTH.size : begin])
    if header is None:
        raise ParcelError("A parcel has a header that is no JSON object.")
    if header["session"] != session:
        raise ParcelError("A parcel is of another session.")
    frames = [*_cut(memoryview(parcel)[begin:], header["frames"])]
    if _digest(frames) != header["sha256"]:
        raise ParcelError("A parcel was changed on its way.")
    rest, seen = iter(frames), set[int]()
    for lane, first, last, snapshot_bytes in header["lanes"]:
        if not all(type(number) is int for number in (lane, first, last, snapshot_bytes)):
            raise ParcelError("A parcel has a header without numbers.")
        if lane in seen or sent.get(lane) != first or not first < last <= _limit(memory, first):
            raise ParcelError(f"A parcel has ticks {first} to {last} of lane {lane}, which were not asked for.")
        seen.add(lane)
        results, opening = _fields(memory, first, last, _next_frame(rest))
        snapshot = None
        boundary, lacks = _boundary(memory, last), snapshot_bytes == _NO_SNAPSHOT
        if (lacks and boundary is not None and memory.board.is_snapshot(boundary)) or (not lacks and boundary is None):
            raise ParcelError(f"A parcel has no snapshot of lane {lane} at tick {last}, or one that is not due.")
        if snapshot_bytes != _NO_SNAPSHOT:
            if not 0 <= snapshot_bytes <= memory.run_schedule.lane_envs * ENV_BYTES:
                raise ParcelError(f"A parcel has a snapshot of {snapshot_bytes} bytes.")
            snapshot = _decompress(_next_frame(rest), snapshot_bytes)
        yield LaneTicks(lane, first, last, results, opening, snapshot)
    if next(rest, None) is not None:
        raise ParcelError("A parcel has more frames than lanes.")


def _last(memory: Memory, lane: int, first: int) -> int:
    """The tick up to which a lane can be sent: played, and not beyond the next boundary."""
    if memory.board.lane_finished.values[lane] < 0:
        return first
    done = int(memory.board.lane_done.values[lane])
    last = min(max(done, 0), _limit(memory, first))
    ticks = memory.run_schedule.round_ticks
    # At a boundary the lane publishes `done` first, then its snapshot, then `finished`.
    if last % ticks == 0 and memory.board.lane_finished.values[lane] < last // ticks:
        last -= 1
    return last


def _limit(memory: Memory, first: int) -> int:
    """The boundary after tick `first`."""
    ticks = memory.run_schedule.round_ticks
    return (first // ticks + 1) * ticks if first >= 0 else 0


def _boundary(memory: Memory, tick: int) -> int | None:
    """The boundary at a tick; None: it is within a round."""
    boundary, rest = divmod(tick, memory.run_schedule.round_ticks)
    return None if rest else boundary


def _spans(memory: Memory, lane: int, first: int, last: int) -> Iterator[NDArray[np.generic]]:
    capacity = memory.run_schedule.capacity
    own, following = np.arange(max(0, first), last), np.arange(first + 1, last + 1)
    for name in result_fields(memory):
        yield memory.ring.field[name][lane][own % capacity]
    for name in OPENING:
        yield memory.ring.field[name][lane][following % capacity]


def _fields(
    memory: Memory, first: int, last: int, frame: memoryview
) -> tuple[dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]:
    """The arrays of a frame, by name."""
    own, following = last - max(0, first), last - first
    wanted = [(name, own) for name in result_fields(memory)] + [(name, following) for name in OPENING]
    views = {name: memory.ring.field[name][0, :0] for name, _ in wanted}
    sizes = [views[name].dtype.itemsize * int(np.prod((count, *views[name].shape[1:]))) for name, count in wanted]
    data, offset, found = _decompress(frame, sum(sizes)), 0, {}
    for (name, count), size in zip(wanted, sizes, strict=True):
        shape = (count, *views[name].shape[1:])
        found[name] = np.frombuffer(data[offset : offset + size], views[name].dtype).reshape(shape)
        offset += size
    return {name: found[name] for name in result_fields(memory)}, {name: found[name] for name in OPENING}


def _cut(data: memoryview, lengths: list[Any]) -> Iterator[memoryview]:
    """Frames of these lengths, which must fill the data."""
    if not all(type(length) is int and length >= 0 for length in lengths) or sum(lengths) != len(data):
        raise ParcelError("A parcel has not the length that its header says.")
    for length in lengths:
        yield data[:length]
        data = data[length:]


def _next_frame(rest: Iterator[memoryview]) -> memoryview:
    """The next frame. Raises `ParcelError` when none is left."""
    frame = next(rest, None)
    if frame is None:
        raise ParcelError("A parcel has fewer frames than its lanes need.")
    return frame


def _decompress(frame: memoryview, size: int) -> bytes:
    """Content of a frame, which must have this size. Nothing larger is ever made."""
    if zstandard.frame_content_size(frame) != size:
        raise ParcelError(f"A parcel has a frame that does not hold {size} bytes.")
    content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    if len(content) != size:
        raise ParcelError(f"A parcel has a frame that does not hold {size} bytes.")
    return content


def _digest(frames: list[bytes] | list[memoryview]) -> str:
    total = hashlib.sha256()
    for frame in frames:
        total.update(frame)
    return total.hexdigest()
