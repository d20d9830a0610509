"""Recomputation of some answers of a node on this machine: a processor may start to compute other bits.

A gateway asks the inference server of this machine what a node was asked, before it publishes the end of the round.
Until then the server has the parameters of that round, and the ring the frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.exploration import Exploration
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
        plan, run_schedule = memory.plan, memory.run_schedule
        self._lanes = {lane: memory.lane(lane) for lane in lanes}
        self._lives = {lane: each.begin_life() for lane, each in self._lanes.items()}  # replies to others do not count
        seed = plan.config.run.seed
        self._exploration = {lane: Exploration(lane, run_schedule, plan.config.explore, seed) for lane in lanes}
        logged = memory.board.lane_logged.values
        # Logged actions are played again as they are, so only those of later ticks are this group's.
        self._audited = {(cell := plan.cell_of(lane)).start: int(logged[cell].max()) - 1 for lane in lanes}
        """The newest tick of each cell that needs no audit any more, by the cell's first lane."""
        self.answers = 0

    def find_mismatch(self) -> tuple[int, int] | None:
        """Audit the ticks that are due. Return the lane and tick of an answer that differs, or None."""
        board, begin = self._memory.board, self._memory.board.committed * self._memory.run_schedule.round_ticks
        for number, audited in self._audited.items():
            cell, first = self._memory.plan.cell_of(number), max(audited + 1, begin)
            first += (number - first) % AUDIT_EVERY
            for tick in range(first, int(board.lane_done.values[cell].min()), AUDIT_EVERY):
                self._audited[number] = tick
                for lane in self._answered(cell, tick):
                    if not self._agrees(lane, tick):
                        return lane, tick
                self.answers += 1
        return None

    def _answered(self, cell: slice, tick: int) -> range:
        """The lanes of a cell, for which this machine has answered again at a tick."""
        lanes = range(cell.start, cell.stop)
        for lane in lanes:
            self._lanes[lane].ask(self._lives[lane], tick)
        self._inference.ring()
        self._waiter.wait(lambda: all(self._lanes[lane].answered for lane in lanes))
        return lanes

    def _agrees(self, lane: int, tick: int) -> bool:
        """True if the ring holds this machine's answer."""
        plan, memory = self._memory.plan, self._lanes[lane]
        slot = tick % self._memory.run_schedule.capacity
        chosen: object = memory.actions
        if not plan.method.samples_actions:
            chosen = self._exploration[lane].choose(tick, memory.actions, [plan.actions] * len(memory.actions))
        answer = {"action": chosen, **memory.declared}
        return all(np.array_equal(memory.slot[name][slot], field) for name, field in answer.items())
