"""How loaded the processes of a run were between two samples of the board: shares, speeds, and what limits the run.

Whoever sees the board can take samples: the observer for the display, the scribe for its records and the summary.

What the shares mean: a process is *busy* while it does not wait for another process of the run. That is wall-clock
time. A process that the kernel took the core from, or that waits for a disk or a GPU, is busy. Its CPU time, in
`cores`, tells the difference: much less of it than of busy time says that something outside the run holds it up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.load.bottleneck import Bottleneck, RoleStatus, verdict
from shared.memory.board import COUNTED_WORDS, MOMENT_WORDS, SAMPLES, Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

LEARNING, NEWEST = range(SAMPLES)
"""The rows of samples that the scribe keeps on the board: at the beginning of learning (or of a sitting that resumes
it), and at the newest record."""


class Sample:
    """The growing words of the board at one moment.

    Attributes:
        words: i8[MOMENT_WORDS + COUNTED_WORDS * processes], all of it, as the scribe keeps it on the board.
        at: CLOCK_MONOTONIC in nanoseconds.
        steps: played by all envs.
        updates: of the learner.
        evaluation_waited: nanoseconds in which the learner waited for a free place in the queue of evaluations.
        contention_at, others, stolen: `shared.memory.board.CONTENTION`.
        busy, waited, cpu: i8[processes], nanoseconds.
    """

    def __init__(self, words: NDArray[np.int64]) -> None:
        self.words = words.copy()
        moment = (int(word) for word in self.words[:MOMENT_WORDS])
        self.at, self.steps, self.updates, self.evaluation_waited, self.contention_at, self.others, self.stolen = moment
        self.busy, self.waited, self.cpu = self.words[MOMENT_WORDS:].reshape(COUNTED_WORDS, -1)

    @classmethod
    def take(cls, memory: Memory, at: int) -> Sample:
        """The words now, at `at` ns. What a process has not counted yet is what its phase says, since its heartbeat."""
        board = memory.board
        since = np.maximum(at - board.heartbeat, 0)
        phase = board.phase.copy()  # `isin` looks twice, and fails when a word changed in between
        busy = board.busy_ns + since * np.isin(phase, (Phase.WORKING, Phase.REPLAYING))
        waited = board.waited_ns + since * (phase == Phase.WAITING)
        steps = int(board.lane_done.values.sum()) * memory.run_schedule.lane_envs
        moment = [at, steps, int(board.updates[0]), int(board.evaluation_wait_ns[0]), *board.contention]
        return cls(np.concatenate([np.array(moment, np.int64), busy, waited, board.cpu_ns]))


@dataclass(frozen=True)
class Load:
    """A stretch of a run. Speeds and shares are None where it has no length."""

    seconds: float
    steps_per_second: float | None
    updates_per_second: float | None
    roles: tuple[RoleStatus, ...]
    others: float | None
    """Cores that other programs used; None: not known."""
    stolen: float | None
    """Cores that the hypervisor took; None: not known."""
    verdict: Bottleneck


def roles_between(memory: Memory, old: Sample, new: Sample) -> tuple[RoleStatus, ...]:
    """Every process of the run."""
    board = memory.board
    absent = set() if memory.plan.evaluation_episodes else {Role.EVALUATOR}
    # What was taken for work may turn out as a death; it is never less than nothing.
    busy, waited = np.maximum(new.busy - old.busy, 0), np.maximum(new.waited - old.waited, 0)
    cores = np.maximum(new.cpu - old.cpu, 0) / (new.at - old.at) if new.at > old.at else None
    return tuple(
        RoleStatus(
            name=memory.plan.processes.name_of(process),
            state=Phase(int(board.phase[process])).name.lower(),
            busy=float(busy[process] / counted) if (counted := busy[process] + waited[process]) else None,
            cores=float(cores[process]) if cores is not None else None,
            restarts=int(board.restarts[process]),
        )
        for process in range(len(board.phase))
        if process not in absent
    )


def load_between(memory: Memory, old: Sample, new: Sample, usable_cores: int) -> Load:
    """The load between two samples, which should be some rounds apart: within a round everybody has a rhythm.

    Args:
        memory: of the run, for what its processes are and do at this moment.
        usable_cores: how many cores the run may use.
    """
    seconds = (new.at - old.at) / 1e9
    speed = pace = None
    if seconds > 0:
        speed = max(0, new.steps - old.steps) / seconds  # a lane that is played again goes back for a moment
        pace = max(0, new.updates - old.updates) / seconds
    roles = roles_between(memory, old, new)
    held = max(0, new.evaluation_waited - old.evaluation_waited) / (new.at - old.at) if seconds > 0 else 0.0
    others = stolen = None
    if 0 < old.contention_at < new.contention_at:
        measured = new.contention_at - old.contention_at
        others, stolen = (max(0, ns) / measured for ns in (new.others - old.others, new.stolen - old.stolen))
    found = verdict(
        roles,
        learning=new.updates > 0,
        usable_cores=usable_cores,
        steps_per_second=speed,
        evaluation_wait=held,
        others=others,
        stolen=stolen,
    )
    return Load(seconds, speed, pace, roles, others, stolen, found)
