"""Data paths through shared memory, each against its limit.

Writing slots, gathering frames and publishing weights are compared with memcpy, which moves the same number of bytes in
one piece, from and to the same memory. The ring is filled with noise, in which some ticks start an episode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count, cycle

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import Figure, WrongResult, seconds_per_call
from learner.engine.interfaces import CHUNK_UPDATES
from learner.networks.frame_blocks import gather_planes_to
from learner.networks.fused import FusedModel
from learner.networks.modules import initial_parameters
from learner.replay.replay_frames import HostFrames, planes_per_transition
from learner.replay.sampling import Replay
from shared.frame_shape import BLOCK, DEFAULT_FRAMES, FRAME_SIDE, STACK
from shared.machine.facts import usable_memory
from shared.memory.memory_need import require_memory
from shared.memory.plan import Plan
from shared.memory.ring import SLOT_FIELDS, Ring
from shared.memory.run_memory import Memory

GRID = DEFAULT_FRAMES.grid
SEED = 1


def fill(ring: Ring, actions: int) -> None:
    """Fill every slot of a ring with noise, with actions below `actions`."""
    random, flat = np.random.default_rng(SEED), ring.flat
    frames = flat["frame"]
    for first in range(0, len(frames), 4096):
        part = frames[first : first + 4096]
        part[:] = random.integers(0, 256, part.shape, np.uint8)
    flat["valid"][:] = 1
    flat["start"][:] = random.random(len(frames)) < 0.01
    flat["terminated"][:] = random.random(len(frames)) < 0.01
    flat["action"][:] = random.integers(0, actions, len(frames))
    flat["raw_reward"][:] = random.integers(-1, 2, len(frames))


Call = Callable[[], object]
Path = Callable[[float], list[Figure]]
"""A measurement of a data path and of memcpy: a function of the seconds."""


def path(name: str, limit: str, nbytes: int, ours: Call, memcpy: Call, items: int, unit: str) -> Path:
    """GB/s of a path, and of `limit`, a memcpy of as many bytes; a note says how many items a second a call moves."""

    def measure(seconds: float) -> list[Figure]:
        plain, own = seconds_per_call((memcpy, ours), seconds)
        note = f"{items / own:,.0f} {unit}/s"
        return [Figure(limit, nbytes / plain / 1e9, "GB/s"), Figure(name, nbytes / own / 1e9, "GB/s", limit, note=note)]

    return measure


def memory_paths(plan: Plan) -> Callable[[float], list[Figure]]:
    """A worker's measurement: GB/s of all data paths and of their memcpy. Raises `ConfigError` without the memory."""
    require_memory(plan, usable_memory())
    memory = Memory.create(plan)
    fill(memory.ring, plan.actions)
    # The last one overwrites the ring.
    paths = [learner_gather(memory), inference_gather(memory), *weights(memory), ring_write(memory)]

    return lambda seconds: [figure for measure in paths for figure in measure(seconds)]


def memcpy_out(ring: Ring, frames: int) -> Callable[[], None]:
    """Copies so many frames out of a ring, each time from another place."""
    flat, plain = ring.flat["frame"], np.zeros((frames, FRAME_SIDE, FRAME_SIDE), np.uint8)
    place = cycle(range(max(1, len(flat) // frames)))

    def copy() -> None:
        first = next(place) * frames
        some = flat[first : first + frames]
        plain[: len(some)] = some

    return copy


def in_blocks(frames: NDArray[np.uint8], mask: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Frames uint8[n, k, 84, 84] as blocks uint8[n, 21, 21, k * 16] (frame_blocks.py), as a reference.

    Where `mask` [n, k] is 0, a frame counts as zeros.
    """
    n, k = frames.shape[:2]
    cells = (frames * (mask != 0)[:, :, None, None]).reshape(n, k, GRID, BLOCK, GRID, BLOCK)
    return cells.transpose(0, 2, 4, 1, 3, 5).reshape(n, GRID, GRID, k * BLOCK * BLOCK)


def learner_gather(memory: Memory) -> Path:
    """Gather the frames of a chunk of updates as blocks."""
    ring, learn, updates = memory.ring, memory.plan.config.learn, 32 * CHUNK_UPDATES
    n, planes = CHUNK_UPDATES * learn.batch_size, planes_per_transition(DEFAULT_FRAMES, 1)
    frames, name = HostFrames(ring), "learner's gather"
    plan = Replay(ring, frames, learn, SEED).draw_round(1, memory.run_schedule.window_ticks, updates, updates)
    parts = [plan.part(first, first + n) for first in range(0, len(plan.action), n)]
    out, part = torch.zeros(DEFAULT_FRAMES.blocks(n, planes), dtype=torch.uint8), cycle(parts)

    def gather() -> None:
        batch = next(part)
        frames.select(batch.rows, batch.frame_mask, out)

    gather()
    if not np.array_equal(out, in_blocks(ring.flat["frame"][parts[0].rows.numpy()], parts[0].frame_mask.numpy())):
        raise WrongResult("The learner gathers other blocks than those of the frames that were sampled.")
    memcpy, nbytes = memcpy_out(ring, n * planes), n * planes * FRAME_SIDE**2
    return path(name, "memcpy out of the ring", nbytes, gather, memcpy, n, "transitions")


def inference_gather(memory: Memory) -> Path:
    """Gather the stacks of a batch for inference, as blocks in words of four pixels."""
    ring, batch, ticks = memory.ring, memory.plan.config.machine.inference_batch, memory.run_schedule.window_ticks
    words = np.zeros((batch, GRID, GRID, STACK, BLOCK), np.uint32)
    planes, envs, tick = ring.planes.view(np.uint32), np.arange(batch), cycle(range(ticks))

    def gather(now: int) -> None:
        rows, mask = ring.stack_rows(envs, np.full(batch, now))
        gather_planes_to(planes, rows, mask, envs, words)

    for now in (1, ticks - 1):
        gather(now)
        rows, mask = ring.stack_rows(envs, np.full(batch, now))
        if not np.array_equal(words.view(np.uint8).reshape(batch, GRID, GRID, -1), in_blocks(ring.planes[rows], mask)):
            raise WrongResult(f"Inference gathers other blocks than those of the stacks of tick {now}.")
    memcpy, nbytes = memcpy_out(ring, batch * STACK), batch * STACK * FRAME_SIDE**2
    return path("inference's gather", "memcpy of stacks", nbytes, lambda: gather(next(tick)), memcpy, batch, "rows")


def weights(memory: Memory) -> list[Path]:
    """Publish the learner's parameters to shared memory, and load them into the network of inference."""
    network, version = memory.plan.network, count()
    learner, acting = (FusedModel(network, torch.device("cpu"), "fp32") for _ in range(2))
    learner.pack(initial_parameters(network, SEED), learner.params)
    plain = learner.params.numpy()
    data, scratch, size = memory.weights.data, np.zeros_like(plain), plain.nbytes

    def publish() -> None:
        memory.weights.publish(next(version), learner.export_into)

    def read() -> None:
        memory.weights.read(acting.take)

    publish()
    read()
    if not torch.equal(acting.params, learner.params):
        raise WrongResult("Inference reads other parameters than those that were published.")
    there, back = partial(np.copyto, data[0], plain), partial(np.copyto, scratch, data[0])
    return [
        path("weights published", "memcpy of parameters", size, publish, there, 1, "versions"),
        path("weights read", "memcpy of them back", size, read, back, 1, "versions"),
    ]


def ring_write(memory: Memory) -> Path:
    """Write one tick of all envs: every field of their slots, frame by frame, as lanes do."""
    ring, schedule = memory.ring, memory.run_schedule
    envs, width, frames = schedule.envs, schedule.lane_envs, ring.flat["frame"]
    source = np.random.default_rng(SEED + 1).integers(0, 256, (envs, FRAME_SIDE, FRAME_SIDE), np.uint8)
    names = [name for name, _, _ in SLOT_FIELDS if name != "frame"]
    tick, place = cycle(range(schedule.capacity)), cycle(range(schedule.capacity))
    lanes = [{name: view[lane] for name, view in ring.field.items()} for lane in range(schedule.lanes)]

    def write() -> None:
        slot = next(tick)
        for index, lane in enumerate(lanes):
            for j in range(width):
                lane["frame"][slot, j] = source[index * width + j]
                for name in names:
                    lane[name][slot, j] = 1

    def copy() -> None:
        first = next(place) * envs
        frames[first : first + envs] = source

    write()
    rows = ring.rows(np.arange(envs), np.zeros(envs, np.int64))
    if not np.array_equal(frames[rows], source) or any((ring.flat[name][rows] != 1).any() for name in names):
        raise WrongResult("The rows of a tick do not hold what was written into its slots.")
    return path("ring write", "memcpy into the ring", source.nbytes, write, copy, envs, "frames")
