"""The state of a run, loaded from a checkpoint: arrays of the roles, and the replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shared.checkpoint.manifest import Manifest
from shared.checkpoint.pieces import arrays_in, boundary_name, open_piece
from shared.checkpoint.segments import (
    read_segment_into,
    segment_name,
    segment_shape,
    segments_needed,
    tail_name,
    tail_shape,
)
from shared.config.run_schedule import RunSchedule
from shared.errors import CheckpointError
from shared.memory.boundary import ArraySpec

_HEADER_LIMIT = 1 << 20
"""Bytes that the state of the roles may have beside its arrays."""


def load_boundary(manifest: Manifest, expected: Mapping[str, ArraySpec]) -> dict[str, np.ndarray]:
    """The arrays that `CheckpointWriter.save` was given.

    Args:
        expected: all arrays that must be there, by name; a larger file is not read.

    Raises:
        CheckpointError: the piece is damaged, of another round or run, or does not have what is expected.
    """
    name = boundary_name(manifest.boundary)
    identity = identity_arrays(manifest.boundary, manifest.experiment)
    arrays_bytes = sum(spec.nbytes for spec in expected.values()) + sum(own.nbytes for own in identity.values())
    with open_piece(manifest.directory, manifest.piece(name), arrays_bytes + _HEADER_LIMIT) as file:
        arrays = arrays_in(file.read(), name)
    for key, spec in expected.items():
        if key not in arrays:
            raise CheckpointError(f"{name} does not hold {key!r}.")
        found = arrays[key]
        if not spec.suits(found):
            raise CheckpointError(f"{name} has {found.dtype}{found.shape} for {key!r}; this run needs {spec}.")
    for key, own in identity.items():
        if not np.array_equal(arrays.pop(key, np.empty(0)), own):
            raise CheckpointError(
                f"{name} is of another run or another round: its {key!r} is not that of its manifest."
            )
    return arrays


def identity_arrays(boundary: int, experiment: str) -> dict[str, np.ndarray]:
    """Arrays of a boundary's piece beside the state of the roles: its round and its run.

    Args:
        boundary: the round that is played next.
        experiment: as of `Config.experiment`.
    """
    return {
        "identity.boundary": np.array([boundary], np.int64),
        "identity.experiment": np.frombuffer(bytes.fromhex(experiment), np.uint8),
    }


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
        CheckpointError: a segment is damaged, of other sizes or of another run; the rings' content is undefined then.
    """
    if not manifest.has_replay and run_schedule.method.on_policy:
        return
    if not manifest.has_replay:
        raise CheckpointError(
            f"{manifest.path} was made without the replay (--checkpoint-replay), which is needed here."
        )
    whole, boundary = segment_shape(run_schedule), manifest.boundary
    parts = [(segment_name(index), index, whole) for index in segments_needed(run_schedule, boundary)]
    if (tail := tail_shape(run_schedule, boundary)) is not None:
        parts.append((tail_name(boundary), boundary // run_schedule.segment_rounds, tail))
    for name, index, shape in parts:
        heartbeat()
        with open_piece(manifest.directory, manifest.piece(name), shape.most_bytes) as file:
            read_segment_into(file.read(), name, index, shape, ring, manifest.experiment)
