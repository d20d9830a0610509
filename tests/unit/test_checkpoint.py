"""Checkpoints and segments: whole or refused, whatever happens to the files or to their writer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shared import files
from shared.checkpoint import KEPT, CheckpointWriter
from shared.config import Config, Learn, Play, Run
from shared.files import write_atomic
from shared.manifest import (
    checksum_of,
    find_checkpoint,
    load_boundary,
    load_segments,
    read_manifest,
)
from shared.parameters import parameters_of
from shared.ring import SLOT_FIELDS
from shared.segments import (
    CheckpointError,
    SegmentShape,
    check_segment,
    read_segment,
    read_segment_into,
    segments_needed,
    write_segment,
)
from shared.sizes import Sizes, sizes_of
from shared.weights_file import load_weights

ACTIONS = 4
CONFIG = Config(
    play=Play(envs=4, lane_envs=2),
    # Rounds of 10 ticks; a window of two of them.
    learn=Learn(total_steps=800, round_steps=40, replay_size=100, learning_starts=40, network="small"),
)
SIZES = sizes_of(CONFIG)
SHAPE = SegmentShape(lanes=2, ticks=10, lane_envs=2)
Fields = dict[str, np.ndarray]


def empty_ring(sizes: Sizes = SIZES) -> Fields:
    lead = (sizes.lanes, sizes.capacity, sizes.lane_envs)
    return {name: np.zeros(lead + shape, dtype) for name, dtype, shape in SLOT_FIELDS}


def play_round(ring: Fields, round_: int, sizes: Sizes = SIZES) -> None:
    """Fill the slots of a round with what only that round would hold."""
    rng = np.random.default_rng(round_)
    ticks = np.arange(round_ * sizes.round_ticks, (round_ + 1) * sizes.round_ticks)
    for view in ring.values():
        new = rng.integers(0, 250, (view.shape[0], len(ticks), *view.shape[2:]))
        view[:, ticks % sizes.capacity] = new.astype(view.dtype)


def boundary_arrays(boundary: int) -> Fields:
    rng = np.random.default_rng(1000 + boundary)
    return {
        "learner.moment1": rng.standard_normal(50).astype(np.float32),
        "lane.snapshot": rng.integers(0, 256, (2, 64), dtype=np.uint8),
        "opening.frame": rng.integers(0, 256, (2, 2, 84, 84), dtype=np.uint8).transpose(1, 0, 3, 2),
    }


def parameters(version: int) -> np.ndarray:
    count = parameters_of("small", ACTIONS).count
    return np.random.default_rng(version).standard_normal(count).astype(np.float32)


def write_run(run_dir: Path, boundaries: int, config: Config = CONFIG) -> tuple[CheckpointWriter, Fields]:
    """A run that saves at every boundary up to `boundaries`."""
    sizes = sizes_of(config)
    run_dir.mkdir(exist_ok=True)
    writer, ring = CheckpointWriter(run_dir, config, sizes, ACTIONS), empty_ring(sizes)
    for round_ in range(boundaries):
        play_round(ring, round_, sizes)
        writer.add_segment(round_, ring)
        save(writer, round_ + 1)
    return writer, ring


def save(writer: CheckpointWriter, boundary: int) -> int:
    return writer.save(boundary, boundary_arrays(boundary), parameters(boundary), {"steps": boundary * 40, "loss": 0.5})


def window_slots(boundary: int, sizes: Sizes = SIZES) -> np.ndarray:
    end = boundary * sizes.round_ticks
    return np.arange(max(0, end - sizes.window_ticks), end) % sizes.capacity


def content(directory: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in directory.iterdir() if entry.is_file()}


# Atomic files


@pytest.mark.parametrize("layer", ["fsync", "rename", "write"])
def test_a_failing_write_leaves_the_old_file_and_no_temporary(
    layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if layer != "write":
        monkeypatch.setattr(files.os, layer, fail)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, fail if layer == "write" else b"new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_and_directory_are_forced_to_the_disk_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        files.os,
        "fsync",
        lambda fd: (calls.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"), fsync(fd)),
    )
    monkeypatch.setattr(files.os, "rename", lambda a, b: (calls.append("rename"), rename(a, b)))
    write_atomic(tmp_path / "file", lambda file: file.write(b"new") and None)
    assert calls == ["file", "rename", "directory"]


# Segments


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
        read_segment_into(path, index, SHAPE, back)
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


def test_every_flipped_bit_and_every_truncation_of_a_segment_is_refused(tmp_path: Path) -> None:
    path = segment_file(tmp_path)
    whole = path.read_bytes()
    regions = [*range(0, 600), *range(600, len(whole), len(whole) // 200), len(whole) - 1]
    for place in regions:
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        path.write_bytes(broken)
        with pytest.raises(CheckpointError):
            check_segment(path, 3, SHAPE, "digest")
    for length in [*range(0, 600, 7), *range(600, len(whole), len(whole) // 50), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_segment(path, 3, SHAPE)
    path.write_bytes(whole + b"x")
    with pytest.raises(CheckpointError, match="follow its header"):
        read_segment(path, 3, SHAPE)


def test_a_segment_of_other_sizes_is_refused_before_memory_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segment_file(tmp_path)

    def no_memory(*_: object) -> None:
        raise AssertionError("allocated")

    monkeypatch.setattr("shared.segments.zstandard.ZstdDecompressor", no_memory)
    for other in (SegmentShape(2, 11, 2), SegmentShape(3, 10, 2), SegmentShape(2, 10, 1)):
        with pytest.raises(CheckpointError, match=r"of another run|at most"):
            read_segment(path, 3, other)
    with pytest.raises(CheckpointError, match="segment is 3, not 4"):
        read_segment(path, 4, SHAPE)
    with pytest.raises(CheckpointError, match="another configuration"):
        check_segment(path, 3, SHAPE, "another digest")
    os.truncate(path, 1 << 40)  # a terabyte of holes
    with pytest.raises(CheckpointError, match="at most"):
        read_segment(path, 3, SHAPE)


def test_a_segment_whose_content_is_shorter_or_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    ring = empty_ring()
    for real, message in ((SegmentShape(2, 9, 2), "too early"), (SegmentShape(2, 11, 2), "longer")):
        path = tmp_path / "segment"
        lying = LyingShape(real.lanes, real.ticks, real.lane_envs)
        write_segment(path, 0, lying, ring, "digest")
        with pytest.raises(CheckpointError, match=message):
            read_segment(path, 0, SHAPE)


class LyingShape(SegmentShape):
    """Writes the content of one shape under the header of another."""

    def header(self, index: int) -> dict[str, object]:
        return SHAPE.header(index)


# Checkpoints


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path / "run", 6)
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        manifest = find_checkpoint(path)
        assert manifest.boundary == 6
        assert manifest.refused == ()
    manifest.require(CONFIG)
    assert manifest.counters == {"steps": 240, "loss": 0.5}
    assert (manifest.game, manifest.network, manifest.actions) == ("breakout", "small", ACTIONS)

    shapes = {name: (array.dtype.str, array.shape) for name, array in boundary_arrays(6).items()}
    loaded = load_boundary(manifest, shapes)
    for name, array in boundary_arrays(6).items():
        np.testing.assert_array_equal(loaded[name], array)

    back = empty_ring()
    load_segments(manifest, SIZES, back)
    for name, view in ring.items():
        np.testing.assert_array_equal(back[name][:, window_slots(6)], view[:, window_slots(6)])

    weights = load_weights(tmp_path / "run")
    np.testing.assert_array_equal(weights.flat, parameters(6))
    assert (weights.game, weights.protocol, weights.version) == ("breakout", "nature", 6)
    by_name = load_file(tmp_path / "run" / "checkpoints" / "weights-00000006.safetensors")
    assert {name: array.shape for name, array in by_name.items()} == dict(parameters_of("small", ACTIONS).shapes)


def test_only_the_window_and_the_newest_two_checkpoints_stay(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 9)
    names = sorted(entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir())
    assert KEPT == 2
    assert names == [
        "boundary-00000008.safetensors",
        "boundary-00000009.safetensors",
        "checkpoint-00000008.json",
        "checkpoint-00000009.json",
        *(f"segment-{index:08d}.ring" for index in range(6, 9)),
        "weights-00000008.safetensors",
        "weights-00000009.safetensors",
    ]
    previous = read_manifest(tmp_path / "run" / "checkpoints" / "checkpoint-00000008.json")
    previous.verify()
    assert previous.segments == segments_needed(SIZES, 8) == range(6, 8)


def test_segments_do_not_pile_up_between_rare_checkpoints(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 2)
    for round_ in range(2, 30):
        play_round(ring, round_)
        writer.add_segment(round_, ring)
    present = sorted(int(path.name[8:16]) for path in writer.directory.glob("segment-*"))
    assert present[:2] == [0, 1]  # named by the checkpoints of boundaries 1 and 2
    assert len(present) <= 2 + 3 + KEPT + 1
    find_checkpoint(tmp_path)
    assert writer.missing_segments(30) == []


def test_with_alternate_a_segment_covers_the_rounds_between_two_snapshots(tmp_path: Path) -> None:
    learn = Learn(
        schedule="alternate", total_steps=400, train_every=4, round_steps=40, snapshot_every_steps=40, replay_size=80
    )
    config = replace(CONFIG, learn=replace(learn, network="small"))
    sizes = sizes_of(config)
    assert (sizes.round_ticks, sizes.snapshot_rounds, sizes.window_ticks) == (1, 10, 20)
    writer, ring = CheckpointWriter(tmp_path, config, sizes, ACTIONS), empty_ring(sizes)
    for round_ in range(30):
        play_round(ring, round_, sizes)
        if sizes.is_snapshot(round_ + 1):
            writer.add_segment(round_ // 10, ring)
    with pytest.raises(ValueError, match="no snapshot"):
        save(writer, 29)
    save(writer, 30)
    manifest = find_checkpoint(tmp_path)
    assert manifest.segments == range(1, 3)
    back = empty_ring(sizes)
    load_segments(manifest, sizes, back)
    for name, view in ring.items():
        np.testing.assert_array_equal(
            back[name][:, window_slots(30, sizes)], view[:, window_slots(30, sizes)], err_msg=name
        )


def test_without_the_replay_nothing_but_the_rings_is_lost(tmp_path: Path) -> None:
    config = replace(CONFIG, run=Run(checkpoint_replay=False))
    writer = CheckpointWriter(tmp_path, config, SIZES, ACTIONS)
    assert writer.missing_segments(5) == []
    save(writer, 5)
    manifest = find_checkpoint(tmp_path)
    assert not manifest.has_replay
    load_boundary(manifest)
    with pytest.raises(CheckpointError, match="--checkpoint-replay"):
        load_segments(manifest, SIZES, empty_ring())


def test_a_boundary_whose_segments_are_missing_is_not_saved(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 2)
    assert writer.missing_segments(4) == [2, 3]
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        save(writer, 4)
    play_round(ring, 2)
    play_round(ring, 3)
    for index in writer.missing_segments(4):
        writer.add_segment(index, ring)
    save(writer, 4)


def test_a_second_writer_finds_everything_and_doing_it_again_changes_nothing(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path, 5)
    before = content(tmp_path / "checkpoints")
    (tmp_path / "checkpoints" / ".segment-00000005.ring.tmp").write_bytes(b"half")
    again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert again.missing_segments(5) == []
    for index in segments_needed(SIZES, 5):
        again.add_segment(index, ring)
    save(again, 5)
    assert content(tmp_path / "checkpoints") == before


def test_a_damaged_segment_is_compressed_again(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path, 5)
    broken = tmp_path / "checkpoints" / "segment-00000004.ring"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-1])
    again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert again.missing_segments(5) == [4]
    again.add_segment(4, ring)
    assert broken.read_bytes() == whole
    assert find_checkpoint(tmp_path).boundary == 5


def test_a_directory_with_checkpoints_of_another_configuration_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 2)
    before = content(tmp_path / "checkpoints")
    other = replace(CONFIG, run=Run(seed=2))
    with pytest.raises(CheckpointError, match="another configuration"):
        CheckpointWriter(tmp_path, other, SIZES, ACTIONS)
    assert content(tmp_path / "checkpoints") == before
    CheckpointWriter(tmp_path, replace(CONFIG, run=Run(plain=True)), SIZES, ACTIONS)


def test_a_writer_stopped_at_any_step_never_loses_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at the k-th call that touches the disk, for every k; each time a new writer goes on."""
    write_run(tmp_path / "start", 4)
    ring = empty_ring()
    for round_ in range(5):
        play_round(ring, round_)

    class Stopped(BaseException):
        """Stands for SIGKILL: no `except Exception` sees it."""

    real: dict[str, Callable[..., object]] = {name: getattr(os, name) for name in ("fsync", "rename", "unlink")}
    stops = 0
    for stop_at in range(1000):
        run = tmp_path / f"run{stop_at}"
        shutil.copytree(tmp_path / "start", run)
        calls = 0

        def counted(name: str, *args: object, stop_at: int = stop_at, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls > stop_at:
                raise Stopped
            return real[name](*args, **kwargs)

        finished = False
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, lambda *a, _name=name, **k: counted(_name, *a, **k))
            try:
                writer = CheckpointWriter(run, CONFIG, SIZES, ACTIONS)
                writer.add_segment(4, ring)
                save(writer, 5)
                finished = True
            except Stopped:
                stops += 1
        found = find_checkpoint(run)
        assert found.boundary in (4, 5)
        assert found.refused == ()
        load_segments(found, SIZES, empty_ring())
        writer = CheckpointWriter(run, CONFIG, SIZES, ACTIONS)
        for index in writer.missing_segments(5):
            writer.add_segment(index, ring)
        save(writer, 5)
        assert find_checkpoint(run).boundary == 5
        assert not list((run / "checkpoints").glob(".*"))
        shutil.rmtree(run)
        if finished:
            break
    assert finished
    assert stops > 12


def test_a_full_disk_is_reported_as_it_is_and_the_older_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, ring = write_run(tmp_path, 4)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            writer.add_segment(4, ring)
    assert writer.missing_segments(5) == [4]
    assert find_checkpoint(tmp_path).boundary == 4


def test_cut_back_forgets_the_future(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 6)
    play_round(ring, 6)
    writer.add_segment(6, ring)
    writer.cut_back(5)
    assert find_checkpoint(tmp_path).boundary == 5
    assert writer.missing_segments(6) == [5]
    assert not list(writer.directory.glob("*00000006*"))


def test_a_run_may_continue_in_another_directory(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path / "old", 5)
    (tmp_path / "new").mkdir()
    writer = CheckpointWriter(tmp_path / "new", CONFIG, SIZES, ACTIONS)
    writer.adopt(find_checkpoint(tmp_path / "old"))
    shutil.rmtree(tmp_path / "old")
    play_round(ring, 5)
    writer.add_segment(5, ring)
    save(writer, 6)
    load_segments(find_checkpoint(tmp_path / "new"), SIZES, empty_ring())


def test_best_keeps_the_first_of_the_best(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    best = tmp_path / "checkpoints" / "best.safetensors"
    assert writer.best_return() is None
    assert not writer.save_best(parameters(1), 1, float("nan"))
    assert writer.save_best(parameters(1), 1, -21.0)
    assert writer.save_best(parameters(2), 2, 0.1)
    assert not writer.save_best(parameters(3), 3, 0.1)
    again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert again.best_return() == 0.1
    save(again, 0)
    weights = load_weights(best)
    assert weights.version == 2
    np.testing.assert_array_equal(weights.flat, parameters(2))


# What is refused, and how


def manifest_of(run: Path) -> Path:
    return find_checkpoint(run).path


def rewrite(path: Path, **changes: object) -> None:
    """Change values of a manifest and make its checksum right, as a forger would."""
    values = json.loads(path.read_bytes())
    values.update(changes)
    del values["checksum"]
    values["checksum"] = checksum_of(values)
    path.write_text(json.dumps(values))


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_and_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, 4)
    newest = manifest_of(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-20])
    found = find_checkpoint(tmp_path)
    assert found.boundary == 3
    assert len(found.refused) == 1
    assert "checkpoint-00000004.json" in found.refused[0]
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        find_checkpoint(newest)
    for other in (tmp_path / "checkpoints").glob("checkpoint-*"):
        other.write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"No checkpoint .* is whole.*00000004.*00000003"):
        find_checkpoint(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        find_checkpoint(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="no file or directory"):
        find_checkpoint(tmp_path / "absent")


@pytest.mark.parametrize(
    "piece", ["segment-00000003.ring", "boundary-00000004.safetensors", "weights-00000004.safetensors"]
)
def test_every_damaged_region_of_every_piece_is_refused(piece: str, tmp_path: Path) -> None:
    write_run(tmp_path, 4)
    manifest, path = manifest_of(tmp_path), tmp_path / "checkpoints" / piece
    whole = path.read_bytes()
    for place in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        broken = bytearray(whole)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        with pytest.raises(CheckpointError, match=f"{piece} is damaged"):
            find_checkpoint(manifest)
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        find_checkpoint(manifest)
    path.unlink()
    with pytest.raises(CheckpointError, match="missing"):
        find_checkpoint(manifest)
    path.symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="not a plain file"):
        find_checkpoint(manifest)
    path.unlink()
    path.write_bytes(whole)
    assert find_checkpoint(manifest).boundary == 4


def test_every_flipped_bit_of_a_manifest_is_refused_or_harmless(tmp_path: Path) -> None:
    write_run(tmp_path, 3)
    path = manifest_of(tmp_path)
    whole, original = path.read_bytes(), read_manifest(path)
    for place in range(0, len(whole), 3):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 7)
        path.write_bytes(broken)
        try:
            assert read_manifest(path) == original
        except CheckpointError:
            continue


def test_foreign_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-00000001.json"
    for text, message in (
        ("[1, 2]", "not a Ringside checkpoint"),
        ('{"step": 3}', "not a Ringside checkpoint"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ("\x80\x04", "not JSON"),
        ('{"kind": "ringside-checkpoint", "format": 99}', "format 99; this program knows format 1"),
    ):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match=message):
            read_manifest(path)
    os.truncate(path, 1 << 40)
    with pytest.raises(CheckpointError, match="too many for a manifest"):
        read_manifest(path)


@pytest.mark.parametrize(
    "name", ["../weights", "/etc/passwd", "a/b", "..", ".hidden", "", "a\0b", "x" * 200, "checkpoints/../../secret"]
)
def test_paths_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    path = manifest_of(tmp_path)
    rewrite(path, pieces=[{"name": name, "bytes": 1, "sha256": "0" * 64}])
    with pytest.raises(CheckpointError, match="not a plain file name"):
        find_checkpoint(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"boundary": -1},
        {"boundary": 1 << 80},
        {"boundary": True},
        {"boundary": "4"},
        {"actions": None},
        {"counters": {"steps": "many"}},
        {"config": []},
        {"pieces": ["weights"]},
        {"pieces": [{"name": "weights", "bytes": -4, "sha256": ""}]},
        {"pieces": {}},
        {"has_replay": 1},
    ],
)
def test_values_of_the_wrong_kind_are_refused(changes: dict[str, object], tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    path = manifest_of(tmp_path)
    rewrite(path, **changes)
    with pytest.raises(CheckpointError, match="is damaged"):
        find_checkpoint(path)


def test_an_absurd_piece_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, 1)
    path, piece = manifest_of(tmp_path), tmp_path / "checkpoints" / "boundary-00000001.safetensors"
    os.truncate(piece, 1 << 40)
    rewrite(path, pieces=[{"name": piece.name, "bytes": 1 << 40, "sha256": "0" * 64}])
    monkeypatch.setattr("shared.manifest.sha256_of", lambda _: pytest.fail("read"))
    with pytest.raises(CheckpointError, match="truncated or foreign"):
        find_checkpoint(path)


def test_arrays_of_another_shape_or_name_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    manifest = find_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"float32\(50,\) for 'learner.moment1'; this run needs <f4\(51,\)"):
        load_boundary(manifest, {"learner.moment1": ("<f4", (51,))})
    with pytest.raises(CheckpointError, match="this run needs <f8"):
        load_boundary(manifest, {"learner.moment1": ("<f8", (50,))})
    with pytest.raises(CheckpointError, match=r"does not hold 'learner\.moment2'"):
        load_boundary(manifest, {"learner.moment2": ("<f4", (50,))})


def test_a_run_with_other_settings_does_not_continue(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    manifest = find_checkpoint(tmp_path)
    manifest.require(replace(CONFIG, learn=replace(CONFIG.learn, total_steps=1_600)))
    manifest.require(replace(CONFIG, machine=replace(CONFIG.machine, actors=7)))
    with pytest.raises(CheckpointError, match=r"--game 'breakout' \(now 'pong'\), --batch-size 32 \(now 64\)"):
        manifest.require(
            replace(CONFIG, play=replace(CONFIG.play, game="pong"), learn=replace(CONFIG.learn, batch_size=64))
        )
    with pytest.raises(CheckpointError, match="of another run"):
        load_segments(manifest, replace(SIZES, envs=8, lane_envs=4), empty_ring())


def test_weights_for_another_game_network_or_action_set_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    weights = load_weights(tmp_path)
    weights.require(network="small", actions=ACTIONS, game="breakout")
    with pytest.raises(CheckpointError, match="network 'small', not 'nature'"):
        weights.require(network="nature", actions=ACTIONS)
    with pytest.raises(CheckpointError, match="choose among 4 actions"):
        weights.require(network="small", actions=18)
    with pytest.raises(CheckpointError, match="trained on breakout, not on pong"):
        weights.require(network="small", actions=ACTIONS, game="pong")


def test_weights_are_read_even_when_the_replay_is_damaged(tmp_path: Path) -> None:
    write_run(tmp_path, 3)
    (tmp_path / "checkpoints" / "segment-00000001.ring").unlink()
    with pytest.raises(CheckpointError, match="No checkpoint"):
        find_checkpoint(tmp_path)
    assert load_weights(tmp_path).version == 3


def test_weights_that_are_foreign_not_finite_or_mislabelled_are_refused(tmp_path: Path) -> None:
    spec, flat = parameters_of("small", ACTIONS), parameters(1)
    good = {"format": 1, "network": "small", "actions": 4, "game": "pong", "protocol": "nature", "version": 7}
    path = tmp_path / "weights.safetensors"

    def refused(arrays: Fields, about: dict[str, object], message: str) -> None:
        save_file(arrays, path, {"ringside": json.dumps(about)})
        with pytest.raises(CheckpointError, match=message):
            load_weights(path)

    save_file(spec.split(flat), path, {"ringside": json.dumps(good), "format": "pt"})
    assert load_weights(path).version == 7
    refused(spec.split(flat), {}, "no weights that Ringside wrote")
    refused(spec.split(flat), good | {"format": 2}, "no weights that Ringside wrote")
    refused(spec.split(flat), good | {"actions": 99999999}, "which is none")
    refused(spec.split(flat), good | {"actions": -4}, "actions is -4")
    refused(spec.split(flat), good | {"network": "resnet"}, "which is none")
    refused(spec.split(flat), good | {"actions": 6}, "the network has float32")
    refused(spec.split(flat) | {"more": np.zeros(3, np.float32)}, good, "does not hold the parameters")
    refused(spec.split(flat) | {"more": np.zeros(1 << 20, np.float32)}, good, "too many for the network")
    refused({k: v.astype(np.float64) for k, v in spec.split(flat).items()}, good, "float64|too many")
    broken = flat.copy()
    broken[5] = np.nan
    refused(spec.split(broken), good, "not finite")
    path.write_bytes(b"\x80\x04\x95 pickled")
    with pytest.raises(CheckpointError, match="is damaged"):
        load_weights(path)


def test_reading_and_writing_load_neither_torch_nor_an_emulator() -> None:
    code = (
        "import sys, shared.checkpoint; "
        "assert not {'torch', 'ale_py', 'numba', 'rich', 'learner', 'actors'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
