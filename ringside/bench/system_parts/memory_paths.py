"""Data paths through shared memory: writing slots, gathering stacks, publishing weights, each against memcpy.

memcpy moves the same number of bytes in one piece, from and to the same memory. The ring is filled with noise, in which
some ticks start an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.initialization import initial_parameters
from learner.engine.interfaces import CHUNK_UPDATES
from learner.inference import Server
from learner.networks.fused import FusedModel
from learner.networks.policy import Policy
from learner.replay.gather import gather_planes_to
from learner.replay.replay_frames import Batch, HostFrames, planes_per_transition
from learner.replay.sampling import Replay
from ringside.bench.harness.interleaved import seconds_per_call
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.limits import Options
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.frame_shape import BLOCK, DEFAULT_FRAMES, FRAME_SIDE, STACK
from shared.machine.facts import usable_memory
from shared.memory.parts.mailbox import request_number
from shared.memory.parts.ring import SLOT_FIELDS, Ring
from shared.memory.plan import Plan
from shared.memory.region.arena import ArenaError
from shared.memory.run_memory import Memory

GRID = DEFAULT_FRAMES.grid

ACTIONS = 4
SEED = 1
INFERENCE_BATCH = 32
SPARE_BYTES = 1_000_000_000
"""Memory that must stay free in addition to the ring."""


@contextmanager
def filled_memory(window_steps: int, **settings: object) -> Iterator[Memory]:
    """Memory of a run with its window full of noise. `settings` are those of `Config.with_settings`.

    Raises:
        CannotRun: there is too little memory.
    """
    start = Config()
    round_steps = min(start.learn.round_steps, window_steps // 2)
    chosen = {"replay_size": window_steps, "round_steps": round_steps, "learning_starts": 1_000, **settings}
    chosen |= {"device": "cpu", "inference_batch": INFERENCE_BATCH}
    config = start.with_settings(actors=1, run_dir=Path(), seed=SEED, **chosen)
    plan = Plan(resolve(config), ACTIONS)
    needed, free = plan.layout.size + SPARE_BYTES, usable_memory()
    if needed > free:
        raise CannotRun(
            f"It needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; a smaller --window-steps needs less."
        )
    try:
        memory = Memory.create(plan)
    except ArenaError as error:
        raise CannotRun(f"{error}") from error
    try:
        fill(memory.ring, ACTIONS)
        yield memory
    finally:
        memory.arena.close()


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


def measure(options: Options, report: Report) -> None:
    """The part `memory` of `launch.py bench limits`."""
    with report.measuring("memory"), filled_memory(options.window_steps) as memory:
        paths = Paths(options, report)
        _learner_gather(paths, memory)
        _inference_gather(paths, memory)
        _weights(paths, memory)
        _ring_write(paths, memory)  # last, as it overwrites the ring


class Paths:
    """Adds a row for each data path, with its memcpy above it."""

    def __init__(self, options: Options, report: Report) -> None:
        self._options, self._report = options, report

    def add(
        self,
        names: tuple[str, str],
        actions: tuple[Callable[[], object], Callable[[], object]],
        nbytes: int,
        note: Callable[[float], str],
    ) -> None:
        """Time memcpy and a data path, which both move `nbytes`; `note` formats the seconds of the latter."""
        times = np.array([seconds_per_call(actions, self._options.seconds) for _ in range(self._options.repeats)])
        limit, ours = nbytes / 1e9 / times.T
        self._report.add(names[0], "GB/s", limit.tolist())
        self._report.add(names[1], "GB/s", ours.tolist(), limit=names[0], note=note(float(np.median(times[:, 1]))))


def _ring_write(paths: Paths, memory: Memory) -> None:
    """Write one tick of all envs: every field of their slots, frame by frame, as lanes do."""
    ring, run_schedule = memory.ring, memory.run_schedule
    source = np.random.default_rng(SEED + 1).integers(0, 256, (run_schedule.envs, FRAME_SIDE, FRAME_SIDE), np.uint8)
    names = [name for name, _, _ in SLOT_FIELDS if name != "frame"]
    tick, place = cycle(range(run_schedule.capacity)), cycle(range(run_schedule.capacity))
    frames = ring.flat["frame"]
    lanes = [{name: view[lane] for name, view in ring.field.items()} for lane in range(run_schedule.lanes)]

    def write() -> None:
        slot = next(tick)
        for index, lane in enumerate(lanes):
            for j in range(run_schedule.lane_envs):
                lane["frame"][slot, j] = source[index * run_schedule.lane_envs + j]
                for name in names:
                    lane[name][slot, j] = 1

    def copy() -> None:
        first = next(place) * run_schedule.envs
        frames[first : first + run_schedule.envs] = source

    write()
    rows = ring.rows(np.arange(run_schedule.envs), np.zeros(run_schedule.envs, np.int64))
    if not np.array_equal(frames[rows], source) or any((ring.flat[name][rows] != 1).any() for name in names):
        raise WrongResult("The rows of a tick do not hold what was written into its slots.")
    paths.add(
        ("memcpy into the ring", "ring write"),
        (copy, write),
        source.nbytes,
        lambda seconds: f"{run_schedule.envs / seconds:,.0f} frames/s",
    )


def _learner_gather(paths: Paths, memory: Memory) -> None:
    """Gather the frames of a chunk of updates as blocks."""
    ring, learn, updates = memory.ring, memory.plan.config.learn, 32 * CHUNK_UPDATES
    n = CHUNK_UPDATES * learn.batch_size
    frames = HostFrames(ring)
    replay = Replay(ring, frames, learn, SEED)
    plan = replay.draw_round(1, memory.run_schedule.window_ticks, updates, updates)
    parts = [plan.part(first, first + n) for first in range(0, len(plan.action), n)]
    planes = planes_per_transition(DEFAULT_FRAMES, 1)
    out = torch.zeros(DEFAULT_FRAMES.blocks(n, planes), dtype=torch.uint8)
    flat, plain = ring.flat["frame"], np.zeros((n * planes, FRAME_SIDE, FRAME_SIDE), np.uint8)
    part, place = cycle(range(len(parts))), cycle(range(max(1, len(flat) // len(plain))))

    def copy() -> None:
        first = next(place) * len(plain)
        some = flat[first : first + len(plain)]
        plain[: len(some)] = some

    def gather(batch: Batch) -> None:
        frames.select(batch.rows, batch.frame_mask, out)

    gather(parts[0])
    chosen = flat[parts[0].rows.numpy()] * parts[0].frame_mask.numpy()[:, :, None, None]
    if not np.array_equal(out.numpy(), _cut(chosen)):
        raise WrongResult("The learner gathers other blocks than those of the frames that were sampled.")
    paths.add(
        ("memcpy out of the ring", "learner's gather"),
        (copy, lambda: gather(parts[next(part)])),
        plain.nbytes,
        lambda seconds: f"{n / seconds:,.0f} transitions/s",
    )


def _cut(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames uint8[n, k, 84, 84] as blocks uint8[n, 21, 21, k * 16] (frame_blocks.py), as a reference."""
    n, k = frames.shape[:2]
    cells = frames.reshape(n, k, GRID, BLOCK, GRID, BLOCK).transpose(0, 2, 4, 1, 3, 5)
    return cells.reshape(n, GRID, GRID, k * BLOCK * BLOCK)


class _Silent:
    """A policy that gathers stacks as `Policy` does, without a network."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.blocks = np.zeros((batch, GRID, GRID, STACK * BLOCK), np.uint32)
        self._words = self.blocks.reshape(batch, GRID, GRID, STACK, BLOCK)
        self._values = np.zeros((batch, ACTIONS), np.float32)

    def values_from_rows(
        self,
        frames: NDArray[np.uint8],
        rows: NDArray[np.int64],
        frame_mask: NDArray[np.bool_],
        places: NDArray[np.int64],
        acting: tuple[NDArray[np.int64], NDArray[np.int64]],
        state: None,
    ) -> NDArray[np.float32]:
        gather_planes_to(frames.view(np.uint32), rows, frame_mask, places, self._words)
        return self._values


def _inference_gather(paths: Paths, memory: Memory) -> None:
    """Work of inference for a batch without the network: stacks, choice, reply."""
    ring, run_schedule, batch = memory.ring, memory.run_schedule, INFERENCE_BATCH
    policy = _Silent(batch)
    server = Server(memory, cast(Policy, policy))
    lanes = np.arange(batch // run_schedule.lane_envs)
    tick, place = cycle(range(run_schedule.window_ticks)), cycle(range(len(ring.flat["frame"]) // (batch * STACK)))
    plain = np.zeros((batch * STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)

    def answer(now: int) -> None:
        server.answer(lanes, np.full(len(lanes), request_number(0, now)))

    def copy() -> None:
        first = next(place) * len(plain)
        plain[:] = ring.flat["frame"][first : first + len(plain)]

    for now in (1, run_schedule.window_ticks - 1):
        answer(now)
        stacks = np.stack([_stack(ring, env, now) for env in range(batch)])
        if not np.array_equal(policy.blocks.view(np.uint8), _cut(stacks)):
            raise WrongResult(f"Inference gathers other blocks than those of the stacks of tick {now}.")
    paths.add(
        ("memcpy of stacks", "inference's gather"),
        (copy, lambda: answer(next(tick))),
        plain.nbytes,
        lambda seconds: f"{1e6 * seconds / batch:.1f} us a row",
    )


def _stack(ring: Ring, env: int, tick: int) -> NDArray[np.uint8]:
    """Reference for the stack of a tick: uint8[4, 84, 84]."""
    lane, j = divmod(env, ring.run_schedule.lane_envs)
    stack = np.zeros((STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
    for place in reversed(range(STACK)):
        if tick < 0:
            break
        stack[place] = ring.field["frame"][lane, tick, j]
        if ring.field["start"][lane, tick, j]:
            break
        tick -= 1
    return stack


def _weights(paths: Paths, memory: Memory) -> None:
    """Publish the learner's parameters to shared memory, and load them into the network of inference."""
    network = memory.plan.network
    learner, inference = (FusedModel(network, torch.device("cpu"), "fp32") for _ in range(2))
    learner.pack(initial_parameters(network, SEED), learner.params)
    plain = learner.params.numpy()
    version = count()
    data, scratch = memory.weights.data, np.zeros_like(plain)

    def publish() -> None:
        memory.weights.publish(next(version), learner.export_into)

    publish()
    memory.weights.read(inference.take)
    if not torch.equal(inference.params, learner.params):
        raise WrongResult("Inference reads other parameters than those that were published.")

    def note(seconds: float) -> str:
        return f"{1e3 * seconds:.2f} ms"

    def copy() -> None:
        np.copyto(data[0], plain)

    def back() -> None:
        np.copyto(scratch, data[0])

    paths.add(("memcpy of parameters", "weights published"), (copy, publish), plain.nbytes, note)
    paths.add(
        ("memcpy of them back", "weights read"),
        (back, lambda: memory.weights.read(inference.take)),
        plain.nbytes,
        note,
    )
