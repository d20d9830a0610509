"""Segments: what comes back is what was written, and everything else is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard

from shared.checkpoint.manifest import verify_piece
from shared.checkpoint.segments import SegmentShape, read_segment_into, write_segment
from shared.errors import CheckpointError
from shared.memory.ring import SLOT_FIELDS
from tests.support.checkpoints import SHAPE, empty_ring, play_round


def read_segment(path: Path, index: int, shape: SegmentShape, experiment: str = "digest") -> dict[str, np.ndarray]:
    """The fields of a segment, in a ring with exactly its capacity, where tick index * T lies at slot 0."""
    lead = (shape.lanes, shape.ticks, shape.lane_envs)
    fields = {name: np.empty(lead + slot, dtype) for name, dtype, slot in shape.slots}
    read_segment_into(path.read_bytes(), path.name, index, shape, fields, experiment)
    return fields


@pytest.mark.parametrize("index", [0, 3, 4, 7])
def test_a_segment_comes_back_as_it_was(index: int, tmp_path: Path) -> None:
    # Capacity 40 and 10 ticks a segment: aligned. With 37 slots, segment 3 wraps.
    for capacity in (10, 37, 40):
        rng = np.random.default_rng(index)
        ring = {
            name: rng.integers(0, 200, (2, capacity, 2, *shape)).astype(dtype) for name, dtype, shape in SLOT_FIELDS
        }
        path = tmp_path / "segment"
        write_segment(path, index, SHAPE, ring, "digest")
        slots = np.arange(index * 10, index * 10 + 10) % capacity
        fields = read_segment(path, index, SHAPE)
        back = {name: np.zeros_like(view) for name, view in ring.items()}
        read_segment_into(path.read_bytes(), path.name, index, SHAPE, back, "digest")
        for name, view in ring.items():
            np.testing.assert_array_equal(fields[name], view[:, slots])
            np.testing.assert_array_equal(back[name][:, slots], view[:, slots])
            outside = np.setdiff1d(np.arange(capacity), slots)
            assert not back[name][:, outside].any()


def segment_file(directory: Path) -> Path:
    ring = empty_ring()
    play_round(ring, 3)
    path = directory / "segment"
    write_segment(path, 3, SHAPE, ring, "digest")
    return path


def test_a_segment_is_described_as_it_was_written(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    piece = write_segment(path, 3, SHAPE, empty_ring(), "digest")
    verify_piece(tmp_path, piece)
    assert (piece.name, piece.bytes) == (path.name, path.stat().st_size)


def test_every_flipped_bit_and_every_truncation_of_a_segment_is_refused_or_harmless(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    whole, fields, refused = path.read_bytes(), read_segment(path, 3, SHAPE), 0
    regions = [*range(0, 600), *range(600, len(whole), len(whole) // 200), len(whole) - 1]
    for place in regions:
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        path.write_bytes(broken)
        try:
            found = read_segment(path, 3, SHAPE)
        except CheckpointError:
            refused += 1
        else:  # in zstd's own header
            assert all((found[name] == view).all() for name, view in fields.items())
    assert len(regions) - refused <= 2
    for length in [*range(0, 600, 7), *range(600, len(whole), len(whole) // 50), len(whole) - 5]:
        path.write_bytes(whole[:length])  # without its last four bytes it has no checksum
        with pytest.raises(CheckpointError):
            read_segment(path, 3, SHAPE)


def test_a_segment_of_other_sizes_is_refused_before_memory_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segment_file(tmp_path)
    monkeypatch.setattr("shared.checkpoint.segments.zstandard.ZstdDecompressor", lambda *_: pytest.fail("allocated"))
    for other in (SegmentShape(2, 11, 11, 2), SegmentShape(3, 10, 10, 2), SegmentShape(2, 10, 10, 1)):
        with pytest.raises(CheckpointError, match="of another run"):
            read_segment(path, 3, other)
    with pytest.raises(CheckpointError, match=r'another run or revision: .*"segment": 3.*, not .*"segment": 4'):
        read_segment(path, 4, SHAPE)
    with pytest.raises(CheckpointError, match=r'"experiment": "digest".*, not .*"experiment": "other"'):
        read_segment(path, 3, SHAPE, "other")
    for begin in (b"", b"[]\n", b"x" * (1 << 17)):
        path.write_bytes(begin + path.read_bytes())
        with pytest.raises(CheckpointError, match="is damaged, or of another run"):
            read_segment(path, 3, SHAPE, "other")


def test_a_segment_whose_content_is_shorter_or_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    ring = empty_ring()
    for real, message in ((SegmentShape(2, 9, 9, 2), "too early"), (SegmentShape(2, 11, 11, 2), "longer")):
        path = tmp_path / "segment"
        lying = LyingShape(real.lanes, real.ticks, real.interval, real.lane_envs)
        write_segment(path, 0, lying, ring, "digest")
        with pytest.raises(CheckpointError, match=message):
            read_segment(path, 0, SHAPE)


class LyingShape(SegmentShape):
    """Writes the content of one shape under the header of another."""

    def header(self, index: int, experiment: str) -> bytes:
        return SHAPE.header(index, experiment)


def forge(path: Path, payload: bytes) -> None:
    """Put another payload into a segment file."""
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + payload)


@pytest.mark.parametrize("window_log", [20, 30])
def test_a_bomb_does_not_go_off(window_log: int, tmp_path: Path) -> None:
    """A small file that unpacks to a quarter of a gigabyte, or asks for a gigabyte to unpack it."""
    path = segment_file(tmp_path)
    setting = zstandard.ZstdCompressionParameters(window_log=window_log)
    forge(path, zstandard.ZstdCompressor(compression_params=setting).compress(bytes(1 << 28)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(CheckpointError, match=r"longer than its header says|too much memory"):
        read_segment(path, 3, SHAPE)


@pytest.mark.parametrize("payload", [b"", b"PK\x03\x04 a zip", b"\x80\x04\x95 a pickle", bytes(100)])
def test_a_foreign_payload_is_refused(payload: bytes, tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    forge(path, payload)
    with pytest.raises(CheckpointError, match="is damaged"):
        read_segment(path, 3, SHAPE)
