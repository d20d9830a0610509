"""What a run was in the end: the content of `summary.json`, and the counters that go on after a resume."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from shared import machine
from shared.board import BEFORE, Board, Role
from shared.config import FRAME_SKIP
from shared.memory import Memory
from watch.metrics import MetricsLog


def counters_of(board: Board) -> dict[str, float]:
    """What the run has taken, former sittings included; named by `BEFORE`."""
    sitting = (
        (time.monotonic_ns() - int(board.begun_ns[0])) / 1e9,
        int(board.restarts.sum()),
        int(board.redone[Role.ACTORS :].sum()),
        int(board.redone[Role.LEARNER]),
    )
    return {name: before + now for name, before, now in zip(BEFORE, board.before.tolist(), sitting, strict=True)}


def summary_of(memory: Memory, log: MetricsLog, boundary: int) -> dict[str, Any]:
    """The run at a boundary whose snapshots are there; below 0: of a run that did not begin."""
    sizes, board, config = memory.sizes, memory.board, memory.plan.config
    state = memory.learner_snapshots.read(boundary) if boundary >= 0 else None
    boundary = max(0, boundary)
    steps, updates = boundary * sizes.round_steps, sizes.updates_before(boundary)
    learning = steps - sizes.first_learning_round * sizes.round_steps
    counters = counters_of(board)
    return {
        "game": config.play.env or config.play.game,
        "steps": steps,
        "frames": steps * FRAME_SKIP,
        "updates": updates,
        "samples_per_step": updates * config.learn.batch_size / learning if learning > 0 else 0.0,
        "rounds": boundary,
        "finished": boundary >= sizes.rounds,
        "episodes": log.episodes,
        "mean_return_100": log.mean_return_100,
        "best_return": log.best_return,
        "seconds": counters["seconds"],
        "steps_per_second": steps / counters["seconds"],
        "weights_sha256": hashlib.sha256(state["online"].tobytes()).hexdigest() if state else None,
        "config_digest": config.digest(),
        "protocol": config.play.protocol,
        "schedule": config.learn.schedule,
        "device": config.machine.device,
        "precision": config.machine.precision,
        "actors": config.machine.actors,
        "seed": config.run.seed,
        "restarts": int(counters["restarts"]),
        "redone_ticks": int(counters["redone_ticks"]),
        "redone_updates": int(counters["redone_updates"]),
        "learner_barrier_seconds": float(board.barrier_ns[0]) / 1e9,
        "machine": machine.describe(),
    }
