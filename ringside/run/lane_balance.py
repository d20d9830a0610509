"""Moves of lanes to other actors, so that no actor waits for a slower one.

Every lane is played for the same number of ticks in a round, and the slowest actor ends it. The supervisor measures the
time of a tick during the run: it grows when another program uses the actor's core, when the core runs slower, or when
its neighbor on the same core works. The result does not depend on the actor that plays a lane (actors/lane.py), so the
moves may depend on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.memory.board import Board
from shared.memory.process_table import ProcessTable, Role

GAIN = 0.1
"""Share by which the longest of the actors' times must shrink for lanes to move: more than costs vary by chance."""
BUSY = 0.5
"""Busy share of the slowest actor, while lanes are played, from which the others wait for it. It is well below 1: with
inference on a CPU even the slowest waits for replies."""
SPANS = 2
"""Spans (rounds between two snapshots) that a measurement takes at least. Two measurements must agree."""
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 300.0
"""Least time of the first measurement, and of any. After each move of lanes the next measurement takes twice as long.
So actors whose speed keeps changing do not move lanes back and forth."""


def moves(costs: Sequence[float], lanes: Sequence[int]) -> list[tuple[int, int]]:
    """The fewest moves of one lane, as (giver, taker), after which the slowest actor is as fast as possible.

    There are none unless that gains `GAIN`.

    The slowest actor gives a lane to the one that it delays least, as long as both finish sooner than the slowest did.
    When no actor can take a lane from the slowest, no division is faster: in it, some actor would have that lane.

    Args:
        costs: time of each actor for one tick of one lane, above 0.
        lanes: number of lanes of each actor, at least 1; each keeps one.
    """
    counts, found = list(lanes), list[tuple[int, int]]()
    before = max(cost * count for cost, count in zip(costs, counts, strict=True))
    actors = range(len(counts))
    while True:
        giver = max(actors, key=lambda actor: costs[actor] * counts[actor])
        longest = costs[giver] * counts[giver]
        taker = min(actors, key=lambda actor: costs[actor] * (counts[actor] + 1))
        if counts[giver] == 1 or costs[taker] * (counts[taker] + 1) >= longest:
            return found if longest < (1 - GAIN) * before else []
        counts[giver] -= 1
        counts[taker] += 1
        found.append((giver, taker))


def count_moves(board: Board, former: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the owner of each lane, and count the lanes that had another one before."""
    owners = board.lane_owner.copy()
    board.moves[0] += np.count_nonzero(owners != former)
    return owners


class _Mark(NamedTuple):
    """The counters of the actors at one moment, and the time that the learner worked while all of them waited."""

    span: int
    busy: NDArray[np.int64]
    waited: NDArray[np.int64]
    ticks: NDArray[np.int64]
    learned: int


class Balancer:
    """Measures the actors, and writes the wanted owner of each lane to the board."""

    def __init__(self, board: Board, processes: ProcessTable, cell_lanes: int) -> None:
        """`cell_lanes`: lanes of a cell, which must all have asked before inference answers one of them."""
        self._board, self._cell_lanes = board, cell_lanes
        self._actors = processes.slice_of(Role.ACTOR)
        self._owners = board.lane_owner.copy()
        self._restarts = 0
        self._unsettled = -1  # the newest span with a restart or a move
        self._started: _Mark | None = None
        self._suspect: int | None = None  # the slowest actor of the last measurement, if it should have given lanes
        self._seconds = FIRST_SECONDS

    def measure(self) -> list[int]:
        """Measure, and write the owners that are wanted from now on; return the actors to wake, which take lanes."""
        board = self._board
        owners = self._owners = count_moves(board, self._owners)
        restarts = int(board.restarts[self._actors].sum())
        span = board.committed // board.run_schedule.snapshot_rounds
        if restarts != self._restarts or (owners != board.lane_wanted).any():
            self._restarts, self._unsettled, self._started, self._suspect = restarts, span, None, None
            return []
        if span <= self._unsettled:  # a boundary later all lanes were started, and no actor still makes emulators
            return []
        if self._started is None:
            self._started = self._mark(span)
            return []
        if span - self._started.span < SPANS:
            return []
        return self._judge(self._started, self._mark(span))

    def _mark(self, span: int) -> _Mark:
        board, actors = self._board, self._actors
        ticks = board.furthest[actors] + board.redone[actors]  # an actor's furthest point counts what was not redone
        learned = int(board.busy_ns[Role.LEARNER]) if board.run_schedule.takes_turns else 0
        return _Mark(span, board.busy_ns[actors].copy(), board.waited_ns[actors].copy(), ticks, learned)

    def _judge(self, old: _Mark, new: _Mark) -> list[int]:
        """Request the moves if two consecutive measurements find the same slowest actor."""
        busy, waited, ticks = new.busy - old.busy, new.waited - old.waited, new.ticks - old.ticks
        if (busy + waited).max() < self._seconds * 1e9 or ticks.min() <= 0:
            return []
        self._started = new
        lanes = np.bincount(self._owners, minlength=len(busy))
        costs = busy / ticks
        slowest = int(np.argmax(costs * lanes))
        found = moves(costs.tolist(), lanes.tolist())
        if busy[slowest] < BUSY * (busy[slowest] + waited[slowest] - (new.learned - old.learned)):
            found = []
        previous, self._suspect = self._suspect, slowest if found else None
        if not found or previous != slowest:
            return []
        self._seconds = min(2 * self._seconds, LONGEST_SECONDS)
        self._want(found)
        return [taker for _, taker in found]

    def _want(self, wanted: list[tuple[int, int]]) -> None:
        """Choose lanes of the cells with most lanes of the giver beyond the taker's, and write their wanted owners.

        So both keep lanes of every cell, and play one while another is answered.
        """
        held = self._owners.copy()
        cells = np.arange(len(held)) // self._cell_lanes
        for giver, taker in wanted:
            surplus = np.bincount(cells, (held == giver).astype(float) - (held == taker))
            lanes = np.flatnonzero(held == giver)
            held[lanes[np.argmax(surplus[cells[lanes]])]] = taker
        self._board.lane_wanted[:] = held
