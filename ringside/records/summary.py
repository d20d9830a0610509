"""Content of `summary.json`, and the counters that continue after a resume."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.records.bottleneck import LEARNING, NEWEST, Sample, find_bottleneck, load_between
from ringside.records.metrics import MetricsLog
from shared.checkpoint.manifest import EVALUATIONS
from shared.config.sections import INEXACT_SCHEDULES
from shared.machine import facts
from shared.memory.board import BEFORE, CHECKPOINT, Board
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

INEXACT_SINCE = "inexact_since_steps"
"""Counter of a run that continues with other arithmetic: its first such step. It was resumed so (`ARITHMETIC` in
shared/config), or played on nodes that compute otherwise."""
_SETTINGS = ("protocol", "schedule", "eval_actions", "device", "precision", "actors", "workers", "seed")
"""Settings that the summary repeats."""


def run_counters(memory: Memory) -> dict[str, float]:
    """Counters of the run, including the time before resumes, by the names of `BEFORE`."""
    board, processes = memory.board, memory.plan.processes
    session = (
        (time.monotonic_ns() - int(board.begun_ns[0])) / 1e9,
        int(board.restarts.sum()),
        int(board.redone[processes.slice_of(memory.plan.player)].sum()),
        int(board.redone[Role.LEARNER]),
    )
    counters = {name: before + now for name, before, now in zip(BEFORE, board.before.tolist(), session, strict=True)}
    if memory.inexact_since >= 0:
        counters[INEXACT_SINCE] = memory.inexact_since
    if board.evaluation_history.any():
        counters |= dict(zip(EVALUATIONS, board.evaluation_history.tolist(), strict=True))
    return counters


def make_summary(
    memory: Memory, log: MetricsLog, boundary: int, machine: Mapping[str, Any], former: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Summary at a boundary whose snapshots are in memory; below 0: the run did not begin.

    A start that has recorded nothing keeps the bottleneck and the busy shares of the `former` summary.
    """
    run_schedule, board, config = memory.run_schedule, memory.board, memory.plan.config
    state = memory.learner_snapshots.read(boundary) if boundary >= 0 else None
    boundary = max(0, boundary)
    steps, updates = boundary * run_schedule.round_steps, run_schedule.updates_before(boundary)
    learning = steps - run_schedule.steps_without_learning
    counters, settings = run_counters(memory), config.to_flat()
    inexact_since = counters.get(INEXACT_SINCE)
    is_exact = config.learn.schedule not in INEXACT_SCHEDULES and config.machine.is_deterministic
    load = _load_fields(memory)
    if not load["limit"]["seconds"]:
        load |= {name: former[name] for name in ("limit", "roles") if name in former}
    return {
        "game": config.play.played,
        **{name: settings[name] for name in _SETTINGS},
        "acting_device": config.machine.acts_on,
        "acting_precision": config.machine.acts_in,
        "steps": steps,
        "frames": None if config.play.frames_per_step is None else steps * config.play.frames_per_step,
        "updates": updates,
        "samples_per_step": updates * run_schedule.update_samples / learning if learning > 0 else 0.0,
        "rounds": boundary,
        "finished": boundary >= run_schedule.rounds,
        **{name: getattr(log.totals, name) for name in ("episodes", "mean_return_100", "best_return")},
        "seconds": counters["seconds"],
        "steps_per_second": steps / counters["seconds"],
        "weights_sha256": hashlib.sha256(state["online"].tobytes()).hexdigest() if state else None,
        "exact": is_exact and inexact_since is None,
        INEXACT_SINCE: inexact_since,
        "config_digest": config.digest(),
        **{name: int(counters[name]) for name in ("restarts", "redone_ticks", "redone_updates")},
        "lane_moves": int(board.moves[0]),
        **load,
        "checkpoint": _checkpoint_fields(board),
        "learner_barrier_seconds": float(board.barrier_ns[0]) / 1e9,
        "machine": machine,
    }


def _checkpoint_fields(board: Board) -> dict[str, float | int] | None:
    """Newest checkpoint since the last start, by the names of `CHECKPOINT`; None: there is none."""
    found = dict(zip(CHECKPOINT, board.checkpoint.tolist(), strict=True))
    if math.isnan(found["bytes"]):
        return None
    return {name: value if name == "seconds" else int(value) for name, value in found.items()}


def _load_fields(memory: Memory) -> dict[str, Any]:
    """Bottleneck, busy shares and memory of the processes.

    They cover the learning part since the last start, up to the newest record; without learning, all of it. The board
    has the samples, because at the end of a run the other processes are gone.
    """
    board = memory.board
    learning, newest = (Sample(memory, board.samples[row]) for row in (LEARNING, NEWEST))
    load, cores = load_between(memory, learning, newest), facts.usable_cores()
    bottleneck = find_bottleneck(load, cores)
    return {
        "limit": {
            "name": bottleneck.kind,
            "role": bottleneck.role,
            "sentence": bottleneck.sentence,
            "steps_per_second": load.steps_per_second,
            "share_of_limit": bottleneck.share,
            "limit_steps_per_second": bottleneck.steps_per_second,
            "seconds": load.seconds,
            "usable_cores": cores,
            "other_programs_cores": load.others,
            "stolen_cores": load.stolen,
        },
        "roles": {
            role.name: {"busy": role.busy, "cores": role.cores, "restarts": role.restarts} for role in load.roles
        },
        "memory": {
            "shared_bytes": memory.arena.layout.size,
            "private_bytes": _by_process(memory, board.private_bytes),
            "device_bytes": _by_process(memory, board.device_bytes),
            "replay_device_bytes": int(board.replay_device_bytes[0]),
        },
    }


def _by_process(memory: Memory, field: NDArray[np.int64]) -> dict[str, int]:
    """Values of a field by name of process, without those that are 0."""
    names = memory.plan.processes.name_of
    return {names(process): int(size) for process, size in enumerate(field) if size}
