"""A part of `bench checkpoint`: size and speed of the segments of the replay buffer, with frames of real games.

The ticks of one round are played at random, compressed, read back and compared. Speeds are per byte of raw slots, so
fewer envs than in a run suffice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from actors.make_env import make_env
from ringside.bench.harness.tables import Report, WrongResult
from shared.checkpoint.segments import SegmentShape, read_segment_into, write_segment
from shared.config.sections import Play
from shared.memory.parts.ring import SLOT_FIELDS

WARM_UP_TICKS = 300


def play(game: str, shape: SegmentShape) -> dict[str, np.ndarray]:
    """Slots [lanes, ticks, lane_envs, ...] of random play; each env starts after a random number of ticks."""
    ring = shape.empty()
    rng = np.random.default_rng(0)
    frame = np.zeros((84, 84), np.uint8)
    for view in ring.values():
        view[:] = 0
    for index in range(shape.lanes * shape.lane_envs):
        lane, j = divmod(index, shape.lane_envs)
        env = make_env(Play(game=game), 1, index, training=True)
        env.reset(0, frame)
        begin = int(rng.integers(1, WARM_UP_TICKS))
        ended = False
        for tick in range(1, begin + shape.ticks):
            place = lane, tick - begin, j
            if tick >= begin:
                ring["frame"][place] = frame
                ring["valid"][place] = not ended
            if ended:
                env.reset(tick, frame)
                ended = False
                continue
            action = int(rng.integers(env.actions))
            outcome = env.step(tick, action, frame)
            ended = outcome.terminated or outcome.truncated
            if tick >= begin:
                ring["action"][place] = action
                ring["raw_reward"][place] = outcome.raw_reward
                ring["terminated"][place] = outcome.terminated
                ring["life_lost"][place] = outcome.life_lost
    return ring


def measure(report: Report, game: str, shape: SegmentShape, repeats: int) -> None:
    """Add the rows of one game. Raises `WrongResult` if the segment read differs from the one written."""
    ring, back = play(game, shape), shape.empty()
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as directory:
        path = Path(directory) / "segment"
        written = _speeds(shape.raw_bytes, repeats, partial(write_segment, path, 0, shape, ring, "benchmark"))
        read = _speeds(shape.raw_bytes, repeats, partial(read_segment_into, path, 0, shape, back))
        ratio = shape.raw_bytes / path.stat().st_size
    for name, _, _ in SLOT_FIELDS:
        if not np.array_equal(back[name], ring[name]):
            raise WrongResult(f"The field {name} of {game} came back changed.")
    report.add(f"{game}: write", "MB/s", written, note=f"a {ratio:.0f}th of the size; not forced to the disk")
    report.add(f"{game}: read", "MB/s", read)


def _speeds(size: int, repeats: int, act: Callable[[], object]) -> list[float]:
    """MB/s of calls that process `size` bytes each."""
    speeds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        act()
        speeds.append(size / 1e6 / (time.perf_counter() - begun))
    return speeds
