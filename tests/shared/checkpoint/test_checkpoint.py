"""Checkpoints: what is kept, what is deleted, and what comes back."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors.numpy import load_file

from shared.checkpoint import checkpoint_writer
from shared.checkpoint.checkpoint_writer import KEPT, CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import Manifest, file_name, read_manifest
from shared.checkpoint.segments import load_boundary, load_segments, segment_of, segments_needed
from shared.checkpoint.weights_file import load_weights
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import Config
from shared.errors import CheckpointError
from shared.files import atomic
from shared.files.run_file_names import BEST_FILE
from shared.frame_shape import STACK
from shared.network_parameters import parameters_of
from tests.support.checkpoints import (
    ACTIONS,
    CONFIG,
    SIZES,
    SMALL,
    Fields,
    boundary_arrays,
    boundary_in,
    content,
    empty_ring,
    parameters,
    play_round,
    save,
    window_slots,
    write_run,
)


def assert_replay(manifest: Manifest, ring: Fields, slots: np.ndarray, run_schedule: RunSchedule = SIZES) -> None:
    """The segments of a checkpoint bring back what was in these slots of the ring."""
    back = empty_ring(run_schedule)
    load_segments(manifest, run_schedule, back)
    for name, view in ring.items():
        np.testing.assert_array_equal(back[name][:, slots], view[:, slots], name)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path / "run", 6)
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        manifest = find_checkpoint(path)
        assert (manifest.boundary, manifest.refused) == (6, ())
    manifest.require(CONFIG)
    assert (manifest.counters, manifest.game, manifest.network) == ({"steps": 240, "loss": 0.5}, "breakout", SMALL)

    loaded = load_boundary(manifest, 1 << 20)
    for name, array in boundary_arrays(6).items():
        np.testing.assert_array_equal(loaded[name], array)
    assert_replay(manifest, ring, window_slots(6))

    weights = load_weights(tmp_path / "run")
    np.testing.assert_array_equal(weights.flat, parameters(6))
    assert (weights.game, weights.protocol, weights.version) == ("breakout", "nature", 6)
    by_name = load_file(manifest.directory / file_name("weights", 6))
    assert {name: array.shape for name, array in by_name.items()} == dict(parameters_of(SMALL).shapes)


def test_only_the_window_and_the_newest_two_checkpoints_stay(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 9)
    directory, segments = tmp_path / "run" / "checkpoints", [f"segment-{index:08d}.ring" for index in range(6, 9)]
    assert KEPT == 2
    kept = [file_name(kind, boundary) for kind in ("boundary", "checkpoint", "weights") for boundary in (8, 9)]
    assert {entry.name for entry in directory.iterdir()} == {*kept, *segments}
    previous = read_manifest(directory / file_name("checkpoint", 8))
    previous.verified()
    assert list(previous.segments) == [segment.name for segment in segments_needed(SIZES, 8)] == segments[:2]


def test_segments_do_not_pile_up_between_rare_checkpoints(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 2)
    for round_ in range(2, 30):
        play_round(ring, round_)
        writer.add_segment(segment_of(SIZES, round_), ring)
    present = sorted(int(path.name[8:16]) for path in writer.directory.glob("segment-*"))
    assert present[:2] == [0, 1]  # named by the checkpoints of boundaries 1 and 2
    assert len(present) <= 2 + 3 + KEPT + 1
    find_checkpoint(tmp_path)
    assert writer.missing_segments(30) == []


TAILS = [
    (30, ["segment-00000001", "segment-00000002"]),
    (27, ["segment-00000000", "segment-00000001", "tail-00000027"]),
    (4, ["tail-00000004"]),
]


@pytest.mark.parametrize(("boundary", "segments"), TAILS)
def test_a_checkpoint_between_ends_of_segments_has_a_tail(tmp_path: Path, boundary: int, segments: list[str]) -> None:
    config = CONFIG.with_settings(schedule="alternate", total_steps=400, snapshot_every_steps=40, replay_size=80)
    run_schedule = replace(make_run_schedule(config), segment_rounds=10)
    assert (run_schedule.round_ticks, run_schedule.window_ticks) == (1, 20)
    writer, ring = CheckpointWriter(tmp_path, config, run_schedule, ACTIONS), empty_ring(run_schedule)
    for round_ in range(boundary):
        play_round(ring, round_, run_schedule)
        if (round_ + 1) % 10 == 0:
            writer.add_segment(segment_of(run_schedule, round_ // 10), ring)
    save(writer, boundary, ring)
    manifest = find_checkpoint(tmp_path)
    assert ([name.removesuffix(".ring") for name in manifest.segments], manifest.has_replay) == (segments, True)
    assert_replay(manifest, ring, window_slots(boundary, run_schedule), run_schedule)
    writer.cut_back(0)
    assert not list(writer.directory.glob("*.ring")), "another run may begin here"


def test_without_the_replay_nothing_but_the_rings_is_lost(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, CONFIG.with_settings(checkpoint_replay=False), SIZES, ACTIONS)
    assert writer.missing_segments(5) == []
    save(writer, 5)
    manifest = find_checkpoint(tmp_path)
    assert (manifest.has_replay, boundary_in(tmp_path).keys()) == (False, boundary_arrays(5).keys())
    with pytest.raises(CheckpointError, match=r"names no piece segment-00000003\.ring"):
        load_segments(manifest, SIZES, empty_ring())


def test_a_boundary_whose_segments_are_missing_is_not_saved(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 2)
    assert writer.missing_segments(4) == [segment_of(SIZES, 2), segment_of(SIZES, 3)]
    with pytest.raises(ValueError, match=r"segment-00000002.*segment-00000003"):
        save(writer, 4)
    play_round(ring, 2)
    play_round(ring, 3)
    save(writer, 4, ring)


def test_a_second_writer_finds_everything_and_doing_it_again_changes_nothing(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path, 5)
    before = content(tmp_path / "checkpoints")
    (tmp_path / "checkpoints" / ".segment-00000005.ring.tmp").write_bytes(b"half")
    again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert again.missing_segments(5) == []
    for segment in segments_needed(SIZES, 5):
        again.add_segment(segment, ring)
    save(again, 5)
    assert content(tmp_path / "checkpoints") == before


@pytest.mark.parametrize("is_damaged", [True, False])
def test_segments_that_are_damaged_or_gone_are_compressed_again(tmp_path: Path, is_damaged: bool) -> None:
    writer, ring = write_run(tmp_path, 5)
    before = content(writer.directory)
    broken = writer.directory / "segment-00000004.ring"
    if is_damaged:
        broken.write_bytes(before[broken.name][:-1])
        again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    else:  # somebody takes everything away
        again = writer
        for path in writer.directory.iterdir():
            path.unlink()
    assert again.missing_segments(5) == segments_needed(SIZES, 5)[is_damaged:]
    save(again, 5, ring)
    assert broken.read_bytes() == before[broken.name]
    assert find_checkpoint(tmp_path).boundary == 5


def test_a_directory_with_checkpoints_of_another_configuration_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 2)
    before = content(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="another configuration"):
        CheckpointWriter(tmp_path, CONFIG.with_settings(seed=2), SIZES, ACTIONS)
    assert content(tmp_path / "checkpoints") == before
    CheckpointWriter(tmp_path, CONFIG.with_settings(plain=True), SIZES, ACTIONS)


def test_a_full_disk_is_reported_and_the_old_checkpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, ring = write_run(tmp_path, 4)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "rename", full)
        with pytest.raises(OSError, match="No space"):
            writer.add_segment(segment_of(SIZES, 4), ring)
    assert writer.missing_segments(5) == [segment_of(SIZES, 4)]
    writer.add_segment(segment_of(SIZES, 4), ring)
    with monkeypatch.context() as patch:
        # Only then it is told what could not be written long ago.
        patch.setattr(checkpoint_writer, "sync", lambda path: full() if path.is_file() else None)
        with pytest.raises(OSError, match="No space"):
            save(writer, 5)
    assert find_checkpoint(tmp_path).boundary == 4
    assert writer.missing_segments(5) == [segment_of(SIZES, 4)], "what was not written is not trusted again"
    save(writer, 5, ring)
    assert find_checkpoint(tmp_path).boundary == 5


def test_cut_back_forgets_the_future(tmp_path: Path) -> None:
    writer, ring = write_run(tmp_path, 6)
    play_round(ring, 6)
    writer.add_segment(segment_of(SIZES, 6), ring)
    writer.cut_back(5)
    assert (find_checkpoint(tmp_path).boundary, writer.missing_segments(6)) == (5, [segment_of(SIZES, 5)])
    assert not list(writer.directory.glob("*00000006*"))


def test_a_run_may_continue_in_another_directory(tmp_path: Path) -> None:
    _, ring = write_run(tmp_path / "old", 5)
    (tmp_path / "new").mkdir()
    writer = CheckpointWriter(tmp_path / "new", CONFIG, SIZES, ACTIONS)
    writer.adopt(find_checkpoint(tmp_path / "old"))
    shutil.rmtree(tmp_path / "old")
    play_round(ring, 5)
    writer.add_segment(segment_of(SIZES, 5), ring)
    save(writer, 6)
    load_segments(find_checkpoint(tmp_path / "new"), SIZES, empty_ring())


@pytest.mark.parametrize(("boundary", "stays"), [(0, False), (1, True), (3, True)])
def test_best_keeps_the_first_of_the_best_until_another_run_begins(tmp_path: Path, boundary: int, stays: bool) -> None:
    writer = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    best = tmp_path / "checkpoints" / "best.safetensors"
    assert writer.best_mean() is None
    offered = ((1, float("nan")), (1, -21.0), (2, 0.1), (3, 0.1))
    assert [writer.save_best(parameters(n), n, mean) for n, mean in offered] == [False, True, True, False]
    again = CheckpointWriter(tmp_path, CONFIG, SIZES, ACTIONS)
    assert again.best_mean() == 0.1
    save(again, 0)
    weights = load_weights(best)
    assert weights.version == 2
    np.testing.assert_array_equal(weights.flat, parameters(2))
    again.cut_back(boundary)
    assert (again.best_mean(), best.exists()) == (0.1 if stays else None, stays)


def test_a_damaged_best_gives_way_to_any(tmp_path: Path) -> None:
    writer, _ = write_run(tmp_path, 1)
    assert writer.save_best(parameters(3), 3, 20.0)
    os.truncate(writer.directory / BEST_FILE, 100)
    assert writer.best_mean() is None
    assert writer.save_best(parameters(4), 4, -3.0)


# On-policy methods: the last round in place of a replay


def on_policy(schedule: str = "concurrent", apart: int = 1, *, checkpoint_replay: bool = True) -> Config:
    """Rounds of 10 ticks of four envs in two lanes."""
    settings = {"schedule": schedule, "batch_size": 40, "snapshot_every_steps": 40 * apart}
    return CONFIG.with_settings(method="a2c", checkpoint_replay=checkpoint_replay, **settings)


@pytest.mark.parametrize(("apart", "boundary"), [(1, 1), (1, 7), (5, 5), (5, 35)])
def test_the_last_round_returns_with_the_history_of_its_first_stacks(tmp_path: Path, apart: int, boundary: int) -> None:
    config = on_policy(apart=apart)
    run_schedule = make_run_schedule(config)
    _, ring = write_run(tmp_path, boundary, config, apart)
    manifest, end = find_checkpoint(tmp_path), boundary * run_schedule.round_ticks
    assert (manifest.boundary, manifest.has_replay) == (boundary, True)
    assert list(manifest.segments) == [f"segment-{boundary - 1:08d}.ring"]
    kept = [f"segment-{saved - 1:08d}.ring" for saved in (boundary - apart, boundary) if saved > 0]
    assert sorted(path.name for path in manifest.directory.glob("*.ring")) == kept, "one for each checkpoint"
    assert "log_prob" in ring
    first = max(0, end - run_schedule.round_ticks - (STACK - 1))
    assert_replay(manifest, ring, np.arange(first, end) % run_schedule.capacity, run_schedule)


WITHOUT = [("alternate", True, True), ("alternate", False, True), ("concurrent", False, False)]


@pytest.mark.parametrize(("schedule", "saved", "has_replay"), WITHOUT)
def test_a_run_goes_on_without_its_last_round(tmp_path: Path, schedule: str, saved: bool, has_replay: bool) -> None:
    """With `alternate` updates use the round that comes; the history of its first stacks lies in the boundary."""
    config = on_policy(schedule, 5, checkpoint_replay=saved)
    run_schedule = make_run_schedule(config)
    write_run(tmp_path, 10, config, 5)
    manifest, back = find_checkpoint(tmp_path), empty_ring(run_schedule)
    assert manifest.has_replay == has_replay, "else the run is inexact from here"
    assert not list(manifest.directory.glob("*.ring"))
    load_segments(manifest, run_schedule, back)
    assert not back["valid"].any(), "no step has a weight"
