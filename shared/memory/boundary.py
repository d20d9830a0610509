"""The state of a whole run at a boundary: captured from shared memory for a checkpoint, restored for a resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RECURRENT_STATE, RunSchedule
from shared.errors import CheckpointError
from shared.memory.evaluation_queue import EvaluationHistory
from shared.memory.run_memory import Memory
from shared.memory.snapshot import ENV_BYTES, state_lengths

_HISTORY = ("frame", "start")
"""Fields that the opening stack reads of the ticks before the boundary. Segments hold them for a replay method. An LSTM
also reads its state."""


class Moved(RuntimeError):
    """The run advanced while its state was copied, so the copy is of no use."""


def newest_boundary(memory: Memory) -> int:
    """The newest committed boundary whose snapshots are all there; -1: none.

    A snapshot of the learner comes after those of all lanes. A reader that meets two writes at once finds none; the
    next look finds one.
    """
    numbers = memory.learner_snapshots.number.values.tolist()  # first: there is always one up to a later commit
    committed = memory.board.committed
    return max((number for number in numbers if number <= committed), default=-1)


def _slots_kept(run_schedule: RunSchedule, boundary: int) -> dict[str, tuple[str, int | NDArray[np.int64]]]:
    """Field and slots of each array that holds a part of the rings."""
    end, history = boundary * run_schedule.round_ticks, run_schedule.history_ticks
    kept: dict[str, tuple[str, int | NDArray[np.int64]]] = {}
    for name in ("frame", "start", "valid"):  # of the opening slot, written with the last tick of the round before
        kept[f"opening.{name}"] = (name, end % run_schedule.capacity)
    if history:
        slots = np.arange(end - history, end) % run_schedule.capacity
        state = (RECURRENT_STATE,) if run_schedule.recurrent_units else ()
        kept |= {f"history.{name}": (name, slots) for name in (*_HISTORY, *state)}
    return kept


def capture(memory: Memory, boundary: int) -> dict[str, NDArray[np.generic]]:
    """Copies of all state of the roles at `boundary`, without the replay.

    Raises:
        Moved: a snapshot of `boundary` is no longer there, or its slots may be written over; take a newer boundary.
    """
    run_schedule, queue = memory.run_schedule, memory.evaluations
    lanes = [memory.lane_snapshots.read(lane, boundary) for lane in range(run_schedule.lanes)]
    whole = [lane for lane in lanes if lane is not None]
    state = memory.learner_snapshots.read(boundary)
    if state is None or len(whole) < len(lanes):
        raise Moved(f"The snapshots of boundary {boundary} are gone.")
    arrays: dict[str, NDArray[np.generic]] = {name: vector.copy() for name, vector in state.items()}
    for key, (name, slots) in _slots_kept(run_schedule, boundary).items():
        arrays[key] = memory.ring.field[name][:, slots].copy()
    queued, logged = queue.queued.read(), queue.logged.read()
    arrays |= {
        "lanes.bytes": np.frombuffer(b"".join(whole), np.uint8),
        "lanes.length": np.array([len(lane) for lane in whole], np.int64),
        "evaluation.counts": np.array([queued, logged], np.int64),
        "evaluation.step": queue.step.copy(),
        "evaluation.data": queue.data[: len(queue.data) if logged < queued else 0].copy(),
    }
    # The learner waits for the scribe before it lets slots be written over, but not while the disk refuses records.
    first = boundary * run_schedule.round_ticks - run_schedule.history_ticks
    overwritten = first < run_schedule.oldest_readable_tick(memory.board.committed)
    if overwritten or memory.learner_snapshots.read(boundary) is None:
        raise Moved(f"The run went beyond boundary {boundary} while it was copied.")
    return arrays


def most_captured_bytes(memory: Memory, past: EvaluationHistory) -> int:
    """Upper estimate of the bytes of the arrays of `capture`, where `past` are evaluations of the captured run."""
    run_schedule, parameters = memory.run_schedule, memory.plan.parameters.count
    numbers = sum(state_lengths(run_schedule, parameters).values()) + past.places * parameters
    slot_bytes = sum(field.nbytes for field in memory.ring.field.values()) // run_schedule.capacity
    return 4 * numbers + slot_bytes * (run_schedule.history_ticks + 1) + run_schedule.envs * ENV_BYTES


def _like(arrays: Mapping[str, NDArray[np.generic]], name: str, wanted: NDArray[Any]) -> NDArray[Any]:
    """The array of that name. Raises `CheckpointError` unless it is like `wanted` and its numbers are finite."""
    if name not in arrays:
        raise CheckpointError(f"The checkpoint is damaged: it does not hold {name!r}.")
    found = arrays[name]
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        raise CheckpointError(
            f"The checkpoint is damaged: it has {found.dtype}{found.shape} for {name!r}; this run needs "
            f"{wanted.dtype}{wanted.shape}."
        )
    if not np.isfinite(found).all():
        raise CheckpointError(f"The checkpoint is damaged: {name!r} holds numbers that are not finite.")
    return found


def restore(
    memory: Memory,
    boundary: int,
    arrays: Mapping[str, NDArray[np.generic]],
    past: EvaluationHistory,
    recorded: int = 0,
) -> None:
    """Write the arrays of `capture` back, before other processes work. The replay is put back by `load_segments`.

    Args:
        arrays: from a file, which may be forged.
        past: evaluations of the run that was captured; this one may have another --eval-every-steps.
        recorded: evaluations that have a record, which may have been written after the capture.

    Raises:
        CheckpointError: they are not those of a run like this one; the memory's content is undefined then.
    """
    run_schedule, board = memory.run_schedule, memory.board
    for key, (name, slots) in _slots_kept(run_schedule, boundary).items():
        field = memory.ring.field[name]
        field[:, slots] = _like(arrays, key, field[:, slots])
    lengths = _like(arrays, "lanes.length", np.empty(run_schedule.lanes, np.int64))
    if lengths.min() < 0 or lengths.max() > run_schedule.lane_envs * ENV_BYTES:
        raise CheckpointError(f"The checkpoint is damaged: snapshots of lanes have {lengths.tolist()!s:.80} bytes.")
    lanes = _like(arrays, "lanes.bytes", np.empty(lengths.sum(), np.uint8))
    for lane, piece in enumerate(np.split(lanes, np.cumsum(lengths)[:-1])):
        memory.lane_snapshots.write(lane, boundary, piece.tobytes())

    def fill(out: dict[str, NDArray[np.float32]]) -> None:
        for name, vector in out.items():
            vector[:] = _like(arrays, name, vector)

    memory.learner_snapshots.write(boundary, fill)
    for ticks in (board.lane_logged, board.lane_done):
        ticks.publish_all(boundary * run_schedule.round_ticks)
    board.lane_finished.publish_all(boundary)
    board.updates[0] = run_schedule.updates_before(boundary)
    _restore_evaluations(memory, boundary, arrays, past, recorded)
    # Last: inference ends when all is committed and nothing is to be evaluated.
    board.commits.publish(boundary)


def _restore_evaluations(
    memory: Memory, boundary: int, arrays: Mapping[str, NDArray[np.generic]], past: EvaluationHistory, recorded: int
) -> None:
    """Write the queue of evaluations back. Arguments and errors as of `restore`."""
    queue, round_steps = memory.evaluations, memory.run_schedule.round_steps
    every = memory.plan.config.evaluate.eval_every_steps
    queued, logged = _like(arrays, "evaluation.counts", np.empty(2, np.int64)).tolist()
    steps = _like(arrays, "evaluation.step", np.empty(past.places, np.int64))
    if not 0 <= logged <= queued <= logged + past.places or steps.min() < 0:
        raise CheckpointError(
            f"The checkpoint is damaged: {queued} evaluations were queued and {logged} written down, of the steps "
            f"{steps.tolist()!s:.80}."
        )
    # Versions of later steps were queued after this boundary; the run queues them again.
    known = min(queued, past.until(boundary, round_steps))
    if every and past.every:
        queue.step[:] = np.minimum(steps, boundary * round_steps)
        if logged < queued:
            queue.data[:] = _like(arrays, "evaluation.data", queue.data)
    else:  # no evaluator has played, or none will: nothing waits, and no number with a record is given again
        known = logged = min(max(logged, recorded), known)
    queue.queued.publish(known)
    # Returns that were not written down are not kept: those evaluations are played again.
    for count in (queue.done, queue.logged):
        count.publish(min(logged, known))
    queue.returns[:] = np.nan  # those written down are in metrics.jsonl
    changed = every != past.every
    memory.board.evaluation_history[:] = (known, boundary) if changed else (past.before, past.since)
