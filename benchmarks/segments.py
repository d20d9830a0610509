"""Size and time of the replay's segments on real frames: what the scribe pays for each round, and a resume for all.

    python -m benchmarks.segments --games breakout pong --ticks 104 --envs 24

Plays at random, compresses the ticks of one round, reads them back and compares; the best of three times. Times are
per megabyte of raw slots, so that fewer envs than in a run do. Beside the format in use stand the candidates that it
was chosen from: other levels of zstd, and differences to the frame before (XOR).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from actors.env import make_env
from shared.config import Play
from shared.ring import SLOT_FIELDS
from shared.segments import SegmentShape, read_segment_into, write_segment

WARM_UP_TICKS = 300
REPEATS = 3


def play(game: str, shape: SegmentShape) -> dict[str, np.ndarray]:
    """Slots [lanes, ticks, lane_envs, ...] of random play, each env at another point of its first episodes."""
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


def best_seconds(act: Callable[[], object]) -> float:
    """The shortest of `REPEATS` times."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return min(times)


def candidates(frames: np.ndarray) -> list[tuple[str, float, float]]:
    """(name, ratio, ms per MB) of ways to compress frames [lanes, ticks, lane_envs, 84, 84], one zstd frame a lane."""

    def plain() -> np.ndarray:
        return frames

    def xor() -> np.ndarray:
        out = frames.copy()
        out[:, 1:] ^= frames[:, :-1]
        return out

    found = []
    for name, prepare in (("plain", plain), ("xor", xor)):
        for level in (-1, 1, 3):
            compressor = zstandard.ZstdCompressor(level=level)

            def compress(
                prepare: Callable[[], np.ndarray] = prepare,
                compressor: zstandard.ZstdCompressor = compressor,
            ) -> int:
                return sum(len(compressor.compress(lane.tobytes())) for lane in prepare())

            seconds = best_seconds(compress)
            found.append((f"{name}, level {level}", frames.nbytes / compress(), seconds * 1e9 / frames.nbytes))
    return found


def measure(game: str, shape: SegmentShape) -> None:
    """Print the figures of one game; fails if what is read differs from what was written."""
    ring = play(game, shape)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "segment"
        written = best_seconds(lambda: write_segment(path, 0, shape, ring, "benchmark"))
        back = shape.empty()
        read = best_seconds(lambda: read_segment_into(path, 0, shape, back))
        size = path.stat().st_size
    for name, _, _ in SLOT_FIELDS:
        np.testing.assert_array_equal(back[name], ring[name])
    raw = shape.raw_bytes
    print(
        f"{game}: {raw / 1e6:.1f} MB -> {size / 1e6:.3f} MB, ratio {raw / size:.0f}; "
        f"write {written * 1e9 / raw:.2f} ms/MB, read {read * 1e9 / raw:.2f} ms/MB"
    )
    for name, ratio, cost in candidates(ring["frame"]):
        print(f"    frames alone, {name:15} ratio {ratio:5.0f}  {cost:.2f} ms/MB")


def main() -> None:
    """Measure the games that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=["breakout", "pong", "seaquest", "ms_pacman", "space_invaders"])
    parser.add_argument("--ticks", type=int, default=104, help="ticks of a round; 104 with the default settings")
    parser.add_argument("--envs", type=int, default=24)
    options = parser.parse_args()
    for game in options.games:
        measure(game, SegmentShape(lanes=options.envs // 2, ticks=options.ticks, lane_envs=2))


if __name__ == "__main__":
    main()
