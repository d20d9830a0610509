"""Checkpoints of on-policy methods, which hold the last round in place of a replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.segments import load_segments, segments_needed
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.frame_shape import STACK
from shared.network_parameters import parameters_of
from shared.network_spec import network_of
from tests.support.checkpoints import ACTIONS, CONFIG, Fields, boundary_arrays, empty_ring, play_round

HISTORY = STACK - 1


def config_of(schedule: str = "concurrent", rounds_apart: int = 1, *, checkpoint_replay: bool = True) -> Config:
    """Rounds of 10 ticks of four envs in two lanes."""
    return CONFIG.with_settings(
        method="a2c",
        schedule=schedule,
        batch_size=40,
        snapshot_every_steps=40 * rounds_apart,
        checkpoint_replay=checkpoint_replay,
    )


def save(writer: CheckpointWriter, boundary: int) -> None:
    count = parameters_of(network_of(config_of(), ACTIONS)).count
    writer.save(boundary, boundary_arrays(boundary), np.full(count, boundary, np.float32), {})


def write_run(run_dir: Path, config: Config, rounds: int) -> Fields:
    """A run that saves at every boundary with snapshots, as the scribe does; returns its ring."""
    run_schedule = make_run_schedule(config)
    writer = CheckpointWriter(run_dir, config, run_schedule, ACTIONS)
    ring = empty_ring(run_schedule)
    for round_ in range(rounds):
        play_round(ring, round_, run_schedule)
        if run_schedule.is_snapshot(round_ + 1):
            for segment in writer.missing_segments(round_ + 1):
                writer.add_segment(segment, ring)
            save(writer, round_ + 1)
    return ring


def slots(config: Config, boundary: int) -> np.ndarray:
    """Slots of the last round before a boundary and of the history of its first stacks."""
    run_schedule = make_run_schedule(config)
    end = boundary * run_schedule.round_ticks
    return np.arange(max(0, end - run_schedule.round_ticks - HISTORY), end) % run_schedule.capacity


@pytest.mark.parametrize(("rounds_apart", "boundary"), [(1, 1), (1, 7), (5, 5), (5, 35)])
def test_the_last_round_comes_back_with_the_history_of_its_first_stacks(
    tmp_path: Path, rounds_apart: int, boundary: int
) -> None:
    config = config_of(rounds_apart=rounds_apart)
    ring = write_run(tmp_path, config, boundary)
    manifest = find_checkpoint(tmp_path)
    assert (manifest.boundary, manifest.has_replay) == (boundary, True)
    assert list(manifest.segments) == [f"segment-{boundary - 1:08d}.ring"]
    back = empty_ring(make_run_schedule(config))
    load_segments(manifest, make_run_schedule(config), back)
    assert "log_prob" in back
    for name, view in ring.items():
        np.testing.assert_array_equal(back[name][:, slots(config, boundary)], view[:, slots(config, boundary)], name)


def test_the_rounds_before_do_not_stay(tmp_path: Path) -> None:
    write_run(tmp_path, config_of(rounds_apart=5), 20)
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("segment-*"))
    assert names == ["segment-00000014.ring", "segment-00000019.ring"], "one for each checkpoint that is kept"


@pytest.mark.parametrize("checkpoint_replay", [True, False])
def test_alternate_needs_no_round(tmp_path: Path, checkpoint_replay: bool) -> None:
    """Its next updates use the round that comes; the history of the first stacks lies in the boundary."""
    config = config_of("alternate", 5, checkpoint_replay=checkpoint_replay)
    run_schedule = make_run_schedule(config)
    write_run(tmp_path, config, 10)
    manifest = find_checkpoint(tmp_path)
    assert manifest.has_replay
    assert not list((tmp_path / "checkpoints").glob("segment-*"))
    assert not segments_needed(run_schedule, 10)
    load_segments(manifest, run_schedule, empty_ring(run_schedule))


def test_without_its_last_round_a_run_with_concurrent_goes_on(tmp_path: Path) -> None:
    config = config_of(checkpoint_replay=False)
    write_run(tmp_path, config, 4)
    manifest = find_checkpoint(tmp_path)
    assert not manifest.has_replay, "the run is inexact from here"
    assert not list((tmp_path / "checkpoints").glob("segment-*"))
    back = empty_ring(make_run_schedule(config))
    load_segments(manifest, make_run_schedule(config), back)
    assert not back["valid"].any(), "no step has a weight"
