"""Load between two samples of the board: busy shares, speeds, and the bottleneck.

The observer samples the board for the display, the scribe for its records and the summary.

A process is *busy* while it waits for no other process of the run. That is wall-clock time: a process that lost its
core, or waits for a disk or a GPU, is busy. Its CPU time, in `cores`, tells the difference. Much less CPU time than
busy time means that something outside the run slows the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ringside.records.bottleneck import Activity, Bottleneck, find_bottleneck
from ringside.records.role_status import NodeStatus, RoleStatus
from shared.memory.board import COUNTED_WORDS, GATEWAY_WORDS, MOMENT_WORDS, SAMPLES, Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

LEARNING, NEWEST = range(SAMPLES)
"""Rows of the samples that the scribe keeps on the board: from the start of learning (or of a resumed run), and from
the newest record."""


class Sample:
    """The monotonic counters of the board at one moment.

    Attributes:
        words: i8[MOMENT_WORDS + COUNTED_WORDS * processes + GATEWAY_WORDS * gateways], all of it, as on the board.
        at: CLOCK_MONOTONIC in nanoseconds.
        steps: played by all envs.
        updates: of the learner.
        evaluation_waited: nanoseconds for which the learner waited for a slot in the queue of evaluations.
        contention_at, others, stolen: `shared.memory.board.CONTENTION`.
        busy, waited, cpu: i8[processes], nanoseconds.
        transfer, sent, received: i8[gateways], nanoseconds and bytes.
    """

    def __init__(self, words: NDArray[np.int64], gateways: int = 0) -> None:
        """`gateways` is their number in the run."""
        self.words = words.copy()
        moment = (int(word) for word in self.words[:MOMENT_WORDS])
        self.at, self.steps, self.updates, self.evaluation_waited, self.contention_at, self.others, self.stolen = moment
        of_gateways = len(self.words) - GATEWAY_WORDS * gateways
        self.busy, self.waited, self.cpu = self.words[MOMENT_WORDS:of_gateways].reshape(COUNTED_WORDS, -1)
        self.transfer, self.sent, self.received = self.words[of_gateways:].reshape(GATEWAY_WORDS, -1)

    @classmethod
    def take(cls, memory: Memory, at: int) -> Sample:
        """Sample at `at` ns. Time since a heartbeat, not counted yet, is attributed by the phase of the process."""
        board = memory.board
        since = np.maximum(at - board.heartbeat, 0)
        phase = board.phase.copy()  # `isin` reads twice, and fails if a word changes in between
        busy = board.busy_ns + since * np.isin(phase, (Phase.WORKING, Phase.REPLAYING))
        waited = board.waited_ns + since * (phase == Phase.WAITING)
        steps = int(board.lane_done.values.sum()) * memory.run_schedule.lane_envs
        moment = [at, steps, int(board.updates[0]), int(board.evaluation_wait_ns[0]), *board.contention]
        counted, reports = [np.array(moment, np.int64), busy, waited, board.cpu_ns], memory.gateways
        if reports is not None:
            counted += [reports.transfer_ns, reports.sent_bytes, reports.received_bytes]
        return cls(np.concatenate(counted), memory.plan.elsewhere.actors)

    @classmethod
    def kept(cls, memory: Memory, row: int) -> Self:
        """The sample that the scribe keeps in a row of the board."""
        return cls(memory.board.samples[row], memory.plan.elsewhere.actors)


@dataclass(frozen=True)
class Load:
    """Load over an interval. Speeds and shares are None if the interval is empty."""

    seconds: float
    updates_per_second: float | None
    activity: Activity

    @cached_property
    def bottleneck(self) -> Bottleneck:
        """The bottleneck of the interval."""
        return find_bottleneck(self.activity)


def roles_between(memory: Memory, old: Sample, new: Sample) -> tuple[RoleStatus, ...]:
    """Every process of the run."""
    board = memory.board
    absent = set(Role) - set(memory.plan.roles)
    # A death may take back time attributed to work; a difference is never negative.
    busy, waited = np.maximum(new.busy - old.busy, 0), np.maximum(new.waited - old.waited, 0)
    cores = np.maximum(new.cpu - old.cpu, 0) / (new.at - old.at) if new.at > old.at else None
    return tuple(
        RoleStatus(
            name=memory.plan.processes.name_of(process),
            state=Phase(int(board.phase[process])).name.lower(),
            busy=float(busy[process] / counted) if (counted := busy[process] + waited[process]) else None,
            cores=float(cores[process]) if cores is not None else None,
            restarts=int(board.restarts[process]),
            node=_node(memory, process, old, new),
        )
        for process in range(len(board.phase))
        if memory.plan.processes.role_of(process) not in absent
    )


def _node(memory: Memory, process: int, old: Sample, new: Sample) -> NodeStatus | None:
    """The node of a process; None if it is no gateway."""
    plan, reports = memory.plan, memory.gateways
    role, actor = plan.processes.role_of(process), plan.processes.number_of(process)
    if reports is None or role is not Role.ACTOR or actor < plan.config.machine.actors:
        return None
    gateway, ns = actor - plan.config.machine.actors, max(1, new.at - old.at)
    moved = {each: getattr(new, each) - getattr(old, each) for each in ("transfer", "sent", "received")}
    transfer, sent, received = (max(0, int(counted[gateway])) / ns for counted in moved.values())
    lanes = int(np.count_nonzero(memory.board.lane_owner == actor))
    losses, audits = int(reports.losses[gateway]), int(reports.audits[gateway])
    return NodeStatus(reports.name(gateway), lanes, losses, audits, transfer, 1e9 * sent, 1e9 * received)


def load_between(memory: Memory, old: Sample, new: Sample, usable_cores: int) -> Load:
    """Load between two samples, several rounds apart: within a round the load of every role varies.

    Args:
        memory: of the run, for the names, phases and restarts of its processes.
        usable_cores: how many cores the run may use.
    """
    speed = pace = None
    evaluation_wait, ns = 0.0, new.at - old.at
    if ns > 0:
        speed = 1e9 * max(0, new.steps - old.steps) / ns  # a replaying lane counts backwards for a moment
        pace = 1e9 * max(0, new.updates - old.updates) / ns
        evaluation_wait = max(0, new.evaluation_waited - old.evaluation_waited) / ns
    others = stolen = None
    if 0 < old.contention_at < new.contention_at:
        measured = new.contention_at - old.contention_at
        others, stolen = (max(0, ns) / measured for ns in (new.others - old.others, new.stolen - old.stolen))
    activity = Activity(
        roles_between(memory, old, new),
        usable_cores,
        learning=new.updates > 0,
        alternates=memory.run_schedule.learns_same_round,
        steps_per_second=speed,
        evaluation_wait=evaluation_wait,
        others=others,
        stolen=stolen,
    )
    return Load(ns / 1e9, pace, activity)
