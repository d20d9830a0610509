"""Segments: files that hold the slots of consecutive ticks of all lanes, compressed once and never changed.

Segment `k` of a replay buffer holds the ticks `[k * T, (k + 1) * T)`, where `T` is `segment_rounds` in ticks. A
checkpoint between two ends of segments has a *tail*: the ticks from the last end to its boundary. An on-policy method
has no replay buffer. With `concurrent` its resume needs one round: segment `k` is round `k`, with the ticks before it
that the stacks of its first ticks need. It is written with a checkpoint alone. With `alternate` a resume needs no
segment.

    header    one line of JSON: format, run, name and sizes, as `Segment.header` has them
    payload   one zstd frame

The content is the slots in the order of ticks, lane by lane and field by field. That is the layout of the ring, so
slots are compressed from the ring and decompressed into it. Storing differences between frames would cost time and save
little, since zstd finds the frame before. A reader knows every size from its configuration and compares. So nothing in
a file decides the size of an allocation, and nothing in it is executed. The manifest has the SHA-256 of the file.

`load_boundary` and `load_segments` read the state of a run from a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import zstandard

from shared.checkpoint.manifest import Manifest, Piece, arrays_in, file_name, open_piece
from shared.config.method_declaration import SlotField
from shared.config.run_schedule import RunSchedule
from shared.errors import CheckpointError
from shared.files.atomic import write_atomic
from shared.memory.ring import SLOT_FIELDS, slot_fields

FORMAT = 5
_LEVEL = 3
_WINDOW_LIMIT = 1 << 27
"""Most memory (bytes) that a frame may ask of the decompressor; level 3 asks for 2 MiB."""


@dataclass(frozen=True)
class Segment:
    """A stretch of ticks of all lanes, which has a file of its own."""

    name: str
    """Name of the file."""
    first_tick: int
    """Below 0 where it begins with ticks before the run, which are of no use."""
    ticks: int
    """Ticks of each lane."""
    lanes: int
    lane_envs: int
    slots: tuple[SlotField, ...] = SLOT_FIELDS

    @property
    def raw_bytes(self) -> int:
        """Bytes of its content."""
        slot = sum(prod(shape) * np.dtype(dtype).itemsize for _, dtype, shape in self.slots)
        return self.lanes * self.ticks * self.lane_envs * slot

    def header(self, experiment: str) -> bytes:
        """The header of its file in the run `experiment`, which a reader knows beforehand."""
        return json.dumps({"format": FORMAT, "experiment": experiment, **asdict(self)}).encode() + b"\n"


def segment_of(run_schedule: RunSchedule, index: int) -> Segment:
    """The segment of that number, from 0."""
    ticks, history = run_schedule.segment_rounds * run_schedule.round_ticks, run_schedule.history_ticks
    return Segment(
        name=file_name("segment", index),
        first_tick=index * ticks - history,
        ticks=history + ticks,
        lanes=run_schedule.lanes,
        lane_envs=run_schedule.lane_envs,
        slots=slot_fields(run_schedule),
    )


def first_needed(run_schedule: RunSchedule, boundary: int) -> int:
    """Number of the first segment whose ticks a run that continues from `boundary` may read."""
    return run_schedule.window_begin(boundary) // (run_schedule.segment_rounds * run_schedule.round_ticks)


def segments_needed(run_schedule: RunSchedule, boundary: int) -> list[Segment]:
    """The segments that hold the window of a run which continues from `boundary`, and the tail, if there is one."""
    whole, rounds = divmod(boundary, run_schedule.segment_rounds)
    found = [segment_of(run_schedule, index) for index in range(first_needed(run_schedule, boundary), whole)]
    if rounds:
        ticks = run_schedule.history_ticks + rounds * run_schedule.round_ticks
        found.append(replace(segment_of(run_schedule, whole), name=file_name("tail", boundary), ticks=ticks))
    return found


def _spans(ring: Mapping[str, np.ndarray], segment: Segment) -> Iterator[np.ndarray]:
    """Contiguous views of the ring in the order of the content; a lane that wraps gives two for a field.

    `ring` has arrays [lanes, capacity, lane_envs, ...]; tick `t` is slot `t % capacity`.
    """
    for lane in range(segment.lanes):
        for name, _, _ in segment.slots:
            lane_slots = ring[name][lane]
            first = segment.first_tick % lane_slots.shape[0]
            until_end = lane_slots[first : first + segment.ticks]
            yield until_end
            if len(until_end) < segment.ticks:
                yield lane_slots[: segment.ticks - len(until_end)]


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array as bytes."""
    return memoryview(array).cast("B")  # type: ignore[arg-type]


def write_segment(directory: Path, segment: Segment, ring: Mapping[str, np.ndarray], experiment: str) -> Piece:
    """Compress a segment from the ring and put it in place, not yet forced to the disk; return its description.

    Args:
        directory: of the file.
        segment: a segment of the run.
        ring: the ring's fields, [lanes, capacity, lane_envs, ...], with all ticks of the segment.
        experiment: `Config.experiment` of the run, by which a stranger's segment is told.

    Raises:
        OSError: the system refuses.
    """
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    stream = compressor.compressobj(size=segment.raw_bytes)
    slots = [stream.compress(_bytes_of(span)) for span in _spans(ring, segment)]
    data = b"".join([segment.header(experiment), *slots, stream.flush()])
    write_atomic(directory / segment.name, data, forced=False)
    return Piece(segment.name, len(data), hashlib.sha256(data).hexdigest())


def read_segment_into(data: bytes, segment: Segment, ring: Mapping[str, np.ndarray], experiment: str) -> None:
    """Decompress a segment straight into its slots of the ring; its header and its checksum must be right.

    Args:
        data: content of the file.
        segment: what it must be.
        ring: the ring's fields, [lanes, capacity, lane_envs, ...].
        experiment: of the run that the segment must be of.

    Raises:
        CheckpointError: a sentence; the slots' content is undefined then.
    """
    name, header = segment.name, segment.header(experiment)
    if not data.startswith(header):
        found = data.partition(b"\n")[0][: len(header)]
        raise CheckpointError(
            f"{name} is damaged, or of another run or revision: it begins with {found!r:.300}, not {header!r:.300}."
        )
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_LIMIT).stream_reader(memoryview(data)[len(header) :])
    try:
        for span in _spans(ring, segment):
            target = _bytes_of(span)
            while target:
                got = reader.readinto(target)
                if got == 0:
                    raise CheckpointError(f"{name} is damaged: its content ends too early.")
                target = target[got:]
        # Reading past the end also makes zstd compare its own checksum.
        if reader.read(1):
            raise CheckpointError(f"{name} is damaged: its content is longer than its header says.")
    except zstandard.ZstdError as error:
        raise CheckpointError(f"{name} is damaged: {error}.") from error


_BOUNDARY_HEADER_LIMIT = 1 << 20
"""Bytes that the state of the roles may have beside its arrays."""


def load_boundary(manifest: Manifest, most: int) -> dict[str, np.ndarray]:
    """The arrays that `CheckpointWriter.save` was given, not yet examined.

    Args:
        most: bytes that they may have; a larger file is not read.

    Raises:
        CheckpointError: the piece is damaged, or of another round or run.
    """
    name = file_name("boundary", manifest.boundary)
    with open_piece(manifest.directory, manifest.piece(name), most + _BOUNDARY_HEADER_LIMIT) as file:
        arrays = arrays_in(file.read(), name)
    if not np.array_equal(arrays.pop(IDENTITY, np.empty(0)), identity(manifest.boundary, manifest.experiment)):
        raise CheckpointError(f"{name} is of another run or another round: its {IDENTITY!r} is not its manifest's.")
    return arrays


IDENTITY = "identity"
"""Array of a boundary's piece beside the state of the roles."""


def identity(boundary: int, experiment: str) -> np.ndarray:
    """Bytes that tell the round that is played next, and the run (`Config.experiment`)."""
    return np.frombuffer(f"boundary {boundary} of {experiment}".encode(), np.uint8)


def load_segments(
    manifest: Manifest,
    run_schedule: RunSchedule,
    ring: Mapping[str, np.ndarray],
    heartbeat: Callable[[], None] = lambda: None,
) -> None:
    """Read the segments of a checkpoint into the rings: the replay, or the last round of an on-policy method.

    Without that round an on-policy run continues: its ticks count as ticks without an action.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; each tick comes to its slot, `tick % capacity`.
        heartbeat: called before each segment.

    Raises:
        CheckpointError: a segment is missing, damaged, of other sizes or of another run; the rings are undefined then.
    """
    if run_schedule.method.on_policy and not manifest.has_replay:
        return
    for segment in segments_needed(run_schedule, manifest.boundary):
        heartbeat()
        most_bytes = segment.raw_bytes + (segment.raw_bytes >> 7) + (1 << 16)  # the content may be incompressible
        with open_piece(manifest.directory, manifest.piece(segment.name), most_bytes) as file:
            read_segment_into(file.read(), segment, ring, manifest.experiment)
