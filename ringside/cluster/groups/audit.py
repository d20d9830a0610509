"""Recomputation of some answers of a node on this machine: a processor may start to compute other bits.

A gateway asks the inference server of this machine what a node was asked, before it publishes the end of the round.
Until then the server has the parameters of that round, and the ring the frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.exploration import Exploration
from shared.memory.lane_memory import LaneMemory
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter

AUDIT_EVERY = 100
"""Ticks of a cell of which one is audited."""


class Audit:
    """Audit of the lanes that a group plays.

    Attributes:
        answers: answers of a cell that this machine computed again and agreed with.
    """

    def __init__(self, memory: Memory, lanes: Sequence[int], waiter: Waiter, inference: Doorbell) -> None:
        """`lanes` are whole cells, owned by the caller; `inference` is the doorbell of this machine's server."""
        self._memory, self._waiter, self._inference = memory, waiter, inference
        self._cells: dict[int, list[int]] = {}
        for lane in lanes:
            self._cells.setdefault(memory.plan.cell_of(lane).start, []).append(lane)
        self._lanes = {lane: _Lane(memory, lane) for lane in lanes}
        logged = memory.board.lane_logged.values
        # Logged actions are played again as they are, so only those of later ticks are this group's.
        self._audited = {number: int(logged[cell].max()) - 1 for number, cell in self._cells.items()}
        self.answers = 0

    def find_mismatch(self) -> tuple[int, int] | None:
        """Audit the ticks that are due. Return the lane and tick of an answer that differs, or None."""
        for number, cell in self._cells.items():
            for tick in self._due(number, cell):
                self._audited[number] = tick
                lane = self._compare(cell, tick)
                if lane is not None:
                    return lane, tick
                self.answers += 1
        return None

    def _due(self, number: int, cell: Sequence[int]) -> range:
        """Ticks of the present round that all lanes of a cell have played and that are to be audited."""
        board, ticks = self._memory.board, self._memory.run_schedule.round_ticks
        first = max(self._audited[number] + 1, board.committed * ticks)
        return range(first + (number - first) % AUDIT_EVERY, int(board.lane_done.values[cell].min()), AUDIT_EVERY)

    def _compare(self, cell: Sequence[int], tick: int) -> int | None:
        """Ask again at a tick. Return a lane that acted otherwise, or None."""
        lanes = [self._lanes[lane] for lane in cell]
        for lane in lanes:
            lane.ask(tick)
        self._inference.ring()
        self._waiter.wait(lambda: all(lane.answered for lane in lanes))
        return next((number for number, lane in zip(cell, lanes, strict=True) if not lane.agrees(tick)), None)


class _Lane:
    """One lane: what was done, and what this machine answers."""

    def __init__(self, memory: Memory, lane: int) -> None:
        plan = memory.plan
        self._memory: LaneMemory = memory.lane(lane)
        self._life = self._memory.begin_life()  # no reply to a former owner is taken
        self._capacity = memory.run_schedule.capacity
        self._samples = plan.method.samples_actions
        self._exploration = Exploration(lane, memory.run_schedule, plan.config.explore, plan.config.run.seed)
        self._possible = [plan.actions] * memory.run_schedule.lane_envs

    def ask(self, tick: int) -> None:
        """Ask the inference server of this machine."""
        self._memory.ask(self._life, tick)

    @property
    def answered(self) -> bool:
        """True if it has answered."""
        return self._memory.answered

    def agrees(self, tick: int) -> bool:
        """True if the ring holds this machine's answer."""
        memory, slot = self._memory, tick % self._capacity
        best = memory.actions
        chosen = best if self._samples else self._exploration.choose(tick, best, self._possible)
        if not np.array_equal(memory.slot["action"][slot], chosen):
            return False
        return all(np.array_equal(memory.slot[name][slot], field) for name, field in memory.declared.items())
