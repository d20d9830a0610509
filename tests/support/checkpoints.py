"""A small run that writes checkpoints, for tests: rounds that are told apart by their content, without any process."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import Piece, manifest_checksum
from shared.checkpoint.segments import load_boundary
from shared.config.method_declaration import method_declaration
from shared.config.protocols import eval_rules
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.sections import Evaluate, Learn, Play
from shared.config.settings import Config
from shared.errors import CheckpointError
from shared.memory.ring import slot_fields
from shared.network_parameters import parameters_of
from shared.network_spec import Network, OwnTorso, network_of

ACTIONS = 4
CONFIG = Config(
    play=Play(envs=4, lane_envs=2),
    # Rounds of 10 ticks; a window of two of them.
    learn=Learn(total_steps=800, round_steps=40, replay_size=100, learning_starts=40, network="small"),
    evaluate=Evaluate(eval_epsilon=0.05, eval_max_frames=18_000, eval_actions="greedy"),
)
SIZES = make_run_schedule(CONFIG)
Fields = dict[str, np.ndarray]


def empty_ring(run_schedule: RunSchedule = SIZES) -> Fields:
    lead = (run_schedule.lanes, run_schedule.capacity, run_schedule.lane_envs)
    return {name: np.zeros(lead + shape, dtype) for name, dtype, shape in slot_fields(run_schedule)}


def play_round(ring: Fields, round_: int, run_schedule: RunSchedule = SIZES) -> None:
    """Fill the slots of a round with what only that round would hold."""
    rng = np.random.default_rng(round_)
    ticks = np.arange(round_ * run_schedule.round_ticks, (round_ + 1) * run_schedule.round_ticks)
    for view in ring.values():
        new = rng.integers(0, 250, (view.shape[0], len(ticks), *view.shape[2:]))
        view[:, ticks % run_schedule.capacity] = new.astype(view.dtype)


def boundary_arrays(boundary: int) -> Fields:
    rng = np.random.default_rng(1000 + boundary)
    return {
        "learner.moment1": rng.standard_normal(50).astype(np.float32),
        "lane.snapshot": rng.integers(0, 256, (2, 64), dtype=np.uint8),
        "opening.frame": rng.integers(0, 256, (2, 2, 84, 84), dtype=np.uint8).transpose(1, 0, 3, 2),
    }


SMALL = Network("small", ACTIONS)


def parameters(version: int, network: Network = SMALL) -> np.ndarray:
    return np.random.default_rng(version).standard_normal(parameters_of(network).count).astype(np.float32)


def write_run(
    run_dir: Path, boundaries: int, config: Config = CONFIG, apart: int = 1, own_torso: OwnTorso | None = None
) -> tuple[CheckpointWriter, Fields]:
    """A run that saves at every boundary up to `boundaries`, or at every so many-th, as the scribe does."""
    run_schedule = make_run_schedule(config)
    run_dir.mkdir(exist_ok=True)
    writer = CheckpointWriter(run_dir, config, run_schedule, ACTIONS, own_torso=own_torso)
    ring = empty_ring(run_schedule)
    for round_ in range(boundaries):
        play_round(ring, round_, run_schedule)
        if (round_ + 1) % apart == 0:
            save(writer, round_ + 1, ring)
    return writer, ring


def save(writer: CheckpointWriter, boundary: int, ring: Fields | None = None) -> int:
    """Save a checkpoint; `ring` holds what its missing segments hold."""
    for segment in writer.missing_segments(boundary) if ring is not None else ():
        writer.add_segment(segment, ring)
    weights = parameters(boundary, writer._network)
    return writer.save(boundary, boundary_arrays(boundary), weights, {"steps": boundary * 40, "loss": 0.5})


def window_slots(boundary: int, run_schedule: RunSchedule = SIZES) -> np.ndarray:
    end = boundary * run_schedule.round_ticks
    return np.arange(max(0, end - run_schedule.window_ticks), end) % run_schedule.capacity


def content(directory: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in directory.iterdir() if entry.is_file()}


def boundary_in(run: Path) -> dict[str, np.ndarray]:
    """All arrays of the state in the newest checkpoint of a run."""
    return load_boundary(find_checkpoint(run), 1 << 20)


def describe(path: Path) -> Piece:
    """A piece as a manifest describes it."""
    data = path.read_bytes()
    return Piece(path.name, len(data), hashlib.sha256(data).hexdigest())


def rewrite(path: Path, **changes: object) -> None:
    """Change values of a manifest and make its checksum right, as a forger would."""
    values = json.loads(path.read_bytes()) | changes
    del values["checksum"]
    path.write_text(json.dumps(values | {"checksum": manifest_checksum(values)}))


def assert_rejected(read: Callable[..., Any], source: Any, says: str, error: type[Exception] = CheckpointError) -> None:
    """The source is refused with a sentence that matches `says`."""
    with pytest.raises(error, match=says):
        read(source)


def random_weights(
    directory: Path, game: str = "pong", *, actions: int = 6, own_torso: OwnTorso | None = None, **settings: object
) -> Path:
    """A file of small random weights for a game, or for an environment `module:factory`, in a new run directory."""
    named = "env" if ":" in game else "game"
    config = Config().with_settings(**{named: game, "network": "small"} | settings)
    rules = eval_rules(config.play, config.evaluate, method_declaration(config.algorithm.method))
    judged = {"eval_epsilon": rules.epsilon, "eval_max_frames": rules.max_frames, "eval_actions": rules.actions}
    config = config.with_settings(**judged)
    count = parameters_of(network_of(config, actions, own_torso)).count
    flat = np.random.default_rng(1).normal(0, 0.05, count).astype(np.float32)
    writer = CheckpointWriter(directory, config, make_run_schedule(config), actions, own_torso=own_torso)
    writer.save_best(flat, version=7, mean_return=0.0)
    return writer.directory / "best.safetensors"
