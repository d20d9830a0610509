"""The state of a whole run at a boundary: captured from shared memory for a checkpoint, restored for a resume."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RECURRENT_STATE, RunSchedule
from shared.errors import CheckpointError
from shared.memory.evaluation_queue import EvaluationHistory
from shared.memory.run_memory import Memory
from shared.memory.snapshot import ENV_BYTES, state_lengths

_OPENING = ("frame", "start", "valid")
"""Fields of the slot that opens the next round, written with the last tick of the round before."""
_HISTORY = ("frame", "start")
"""Fields of the ticks before it that its stack reads. Of a replay method they lie in the segments. An LSTM reads its
state, too."""


VARIABLE = ("lanes.bytes", "evaluation.data")
"""Arrays that may have fewer rows than `captured_arrays` says."""


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
    kept: dict[str, tuple[str, int | NDArray[np.int64]]] = {
        f"opening.{name}": (name, end % run_schedule.capacity) for name in _OPENING
    }
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
    arrays |= {
        "lanes.bytes": np.frombuffer(b"".join(whole), np.uint8),
        "lanes.length": np.array([len(lane) for lane in whole], np.int64),
        "evaluation.counts": np.array([queue.queued.read(), queue.logged.read()], np.int64),
        "evaluation.step": queue.step.copy(),
        "evaluation.data": queue.data[: len(queue.data) if queue.pending else 0].copy(),
    }
    # The learner waits for the scribe before it lets slots be written over, but not while the disk refuses records.
    first = boundary * run_schedule.round_ticks - run_schedule.history_ticks
    overwritten = first < run_schedule.oldest_readable_tick(memory.board.committed)
    if overwritten or memory.learner_snapshots.read(boundary) is None:
        raise Moved(f"The run went beyond boundary {boundary} while it was copied.")
    return arrays


def captured_arrays(memory: Memory, past: EvaluationHistory) -> dict[str, NDArray[np.generic]]:
    """Arrays of the types and shapes of those of `capture`.

    Args:
        past: evaluations of the run that was captured.
    """
    lengths = state_lengths(memory.run_schedule, memory.plan.parameters.count)
    arrays: dict[str, NDArray[np.generic]] = {name: np.empty(length, np.float32) for name, length in lengths.items()}
    for key, (name, slots) in _slots_kept(memory.run_schedule, 0).items():
        arrays[key] = memory.ring.field[name][:, slots]
    lanes = memory.run_schedule.lanes
    # A run without evaluation has one number for each place.
    evaluated = memory.plan.parameters.count if past.every else 1
    return arrays | {
        "lanes.bytes": np.empty(lanes * _most_lane_bytes(memory), np.uint8),
        "lanes.length": np.empty(lanes, np.int64),
        "evaluation.counts": np.empty(2, np.int64),
        "evaluation.step": np.empty(past.places, np.int64),
        "evaluation.data": np.empty((past.places, evaluated), np.float32),
    }


def _most_lane_bytes(memory: Memory) -> int:
    """Most bytes of a lane's snapshot."""
    return memory.run_schedule.lane_envs * ENV_BYTES


def _check(memory: Memory, arrays: Mapping[str, NDArray[np.generic]], past: EvaluationHistory) -> None:
    """Raise `CheckpointError` unless the arrays, which `captured_arrays` suits, agree with each other."""
    lengths, most = arrays["lanes.length"].tolist(), _most_lane_bytes(memory)
    queued, logged = arrays["evaluation.counts"].tolist()
    state = (f"history.{RECURRENT_STATE}",) if memory.run_schedule.recurrent_units else ()
    numbers = (*state_lengths(memory.run_schedule, memory.plan.parameters.count), "evaluation.data", *state)
    fits = len(arrays["lanes.bytes"]) == sum(lengths) and all(0 <= length <= most for length in lengths)
    faults = {
        "its lanes have no snapshots of the lengths that it says": not fits,
        "its versions to evaluate are none of this run": len(arrays["evaluation.data"]) not in (0, past.places),
        f"{queued} evaluations were queued and {logged} written down": not (
            0 <= logged <= queued <= logged + past.places
        ),
        "a version to evaluate is of a step below 0": min(arrays["evaluation.step"].tolist(), default=0) < 0,
        **{f"{name!r} holds numbers that are not finite": not np.isfinite(arrays[name]).all() for name in numbers},
    }
    if fault := next((fault for fault, is_so in faults.items() if is_so), None):
        raise CheckpointError(f"The checkpoint is damaged: {fault}.")


def restore(
    memory: Memory,
    boundary: int,
    arrays: Mapping[str, NDArray[np.generic]],
    past: EvaluationHistory,
    recorded: int = 0,
) -> None:
    """Write the arrays of `capture` back, before other processes work. The replay is put back by `load_segments`.

    Args:
        arrays: with all that `expected` names.
        past: evaluations of the run that was captured; this one may have another --eval-every-steps.
        recorded: evaluations that have a record, which may have been written after the capture.

    Raises:
        CheckpointError: they do not suit each other.
    """
    _check(memory, arrays, past)
    run_schedule, board = memory.run_schedule, memory.board
    for key, (name, slots) in _slots_kept(run_schedule, boundary).items():
        memory.ring.field[name][:, slots] = arrays[key]
    ends = np.cumsum(arrays["lanes.length"])
    for lane, piece in enumerate(np.split(arrays["lanes.bytes"], ends[:-1])):
        memory.lane_snapshots.write(lane, boundary, piece.tobytes())

    def fill(out: dict[str, NDArray[np.float32]]) -> None:
        for name in out:
            out[name][:] = arrays[name]

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
    """Write the queue of evaluations back. Arguments as in `restore`."""
    queue, round_steps = memory.evaluations, memory.run_schedule.round_steps
    every = memory.plan.config.evaluate.eval_every_steps
    queued, logged = (int(count) for count in arrays["evaluation.counts"])
    # Versions of later steps were queued after this boundary; the run queues them again.
    queued = min(queued, past.until(boundary, round_steps))
    if every and past.every:
        queue.step[:] = np.minimum(arrays["evaluation.step"], boundary * round_steps)
        if len(arrays["evaluation.data"]):
            queue.data[:] = arrays["evaluation.data"]
    else:  # no evaluator has played, or none will: nothing waits, and no number with a record is given again
        queued = logged = min(max(logged, recorded), queued)
    queue.queued.publish(queued)
    # Returns that were not written down are not kept: those evaluations are played again.
    for count in (queue.done, queue.logged):
        count.publish(min(logged, queued))
    queue.returns[:] = np.nan  # those written down are in metrics.jsonl
    changed = every != past.every
    memory.board.evaluation_history[:] = (queued, boundary) if changed else (past.before, past.since)
