"""Segments: what comes back is what was written, and everything else is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

from shared.checkpoint.manifest import verify_piece
from shared.checkpoint.segments import Segment, read_segment_into, segment_of, write_segment
from shared.errors import CheckpointError
from tests.support.checkpoints import SIZES, Fields, empty_ring, play_round

THIRD = segment_of(SIZES, 3)


def read_segment(path: Path, segment: Segment = THIRD, experiment: str = "digest") -> Fields:
    """The fields of a segment, in a ring with exactly its capacity, where its ticks begin at slot 0."""
    lead = (segment.lanes, segment.ticks, segment.lane_envs)
    fields = {name: np.empty(lead + shape, dtype) for name, dtype, shape in segment.slots}
    read_segment_into(path.read_bytes(), segment, fields, experiment)
    return fields


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment's file."""
    ring = empty_ring()
    play_round(ring, 3)
    verify_piece(tmp_path, write_segment(tmp_path, THIRD, ring, "digest"))
    return tmp_path / THIRD.name


@pytest.mark.parametrize("index", [0, 3, 4, 7])
def test_a_segment_comes_back_as_it_was(index: int, tmp_path: Path) -> None:
    # Capacity 40 and 10 ticks a segment: aligned. With 37 slots, segment 3 wraps.
    for capacity in (10, 37, 40):
        rng, segment = np.random.default_rng(index), segment_of(SIZES, index)
        ring = {
            name: rng.integers(0, 200, (2, capacity, 2, *shape)).astype(dtype) for name, dtype, shape in segment.slots
        }
        write_segment(tmp_path, segment, ring, "digest")
        slots = np.arange(index * 10, index * 10 + 10) % capacity
        back = {name: np.zeros_like(view) for name, view in ring.items()}
        read_segment_into((tmp_path / segment.name).read_bytes(), segment, back, "digest")
        for name, view in ring.items():
            np.testing.assert_array_equal(back[name][:, slots], view[:, slots])
            assert not np.delete(back[name], slots, axis=1).any(), "nothing is written elsewhere"


def test_every_flipped_bit_and_every_truncation_of_a_segment_is_refused_or_harmless(path: Path) -> None:
    whole, fields, refused = path.read_bytes(), read_segment(path), 0
    regions = [*range(0, 600), *range(600, len(whole), len(whole) // 200), len(whole) - 1]
    for place in regions:
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        path.write_bytes(broken)
        try:
            found = read_segment(path)
        except CheckpointError:
            refused += 1
        else:  # in zstd's own header
            assert all((found[name] == view).all() for name, view in fields.items())
    assert len(regions) - refused <= 2
    for length in [*range(0, 600, 7), *range(600, len(whole), len(whole) // 50), len(whole) - 5]:
        path.write_bytes(whole[:length])  # without its last four bytes it has no checksum
        with pytest.raises(CheckpointError):
            read_segment(path)


OTHERS = [
    (replace(THIRD, ticks=11), "digest", r'"ticks": 10,.*, not .*"ticks": 11,'),
    (replace(THIRD, lanes=3), "digest", r'"lanes": 2,.*, not .*"lanes": 3,'),
    (replace(THIRD, lane_envs=1), "digest", r'"lane_envs": 2,.*, not .*"lane_envs": 1,'),
    (segment_of(SIZES, 4), "digest", r"begins with .*segment-00000003.*, not .*segment-00000004"),
    (THIRD, "other", r'"experiment": "digest".*, not .*"experiment": "other"'),
]


@pytest.mark.parametrize(("other", "experiment", "says"), OTHERS)
def test_a_segment_of_another_run_is_refused_before_memory_is_asked_for(
    other: Segment, experiment: str, says: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.checkpoint.segments.zstandard.ZstdDecompressor", lambda *_: pytest.fail("allocated"))
    with pytest.raises(CheckpointError, match=f"of another run or revision: .*{says}"):
        read_segment(path, other, experiment)
    for begin in (b"", b"[]\n", b"x" * (1 << 17)):
        path.write_bytes(begin + path.read_bytes())
        with pytest.raises(CheckpointError, match="is damaged, or of another run"):
            read_segment(path, THIRD, "other")


def compressed(size: int, window_log: int = 20) -> bytes:
    """So many zeros."""
    setting = zstandard.ZstdCompressionParameters(window_log=window_log)
    return zstandard.ZstdCompressor(compression_params=setting).compress(bytes(size))


PAYLOADS = [
    (compressed(THIRD.raw_bytes - 1), "ends too early"),
    (compressed(THIRD.raw_bytes + 1), "longer than its header says"),
    (compressed(1 << 28), "longer than its header says"),
    (compressed(1 << 28, window_log=30), "too much memory"),
    (b"", "is damaged"),
    (b"PK\x03\x04 a zip", "is damaged"),
    (b"\x80\x04\x95 a pickle", "is damaged"),
    (bytes(100), "is damaged"),
]


@pytest.mark.parametrize(("payload", "says"), PAYLOADS, ids=range(8))
def test_a_foreign_payload_is_refused(payload: bytes, says: str, path: Path) -> None:
    """Among them small files that unpack to a quarter of a gigabyte, or ask for a gigabyte to unpack them."""
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + payload)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(CheckpointError, match=says):
        read_segment(path)
