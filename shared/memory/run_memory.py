"""The shared region of one run, as its processes see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shared.memory.lane_memory import LaneMemory
from shared.memory.parts.board import Board
from shared.memory.parts.evaluation_queue import Evaluations
from shared.memory.parts.gateways import Gateways
from shared.memory.parts.mailbox import Mailbox
from shared.memory.parts.publication import PublishedWeights
from shared.memory.parts.ring import Ring, ring_fields
from shared.memory.parts.shared_parameters import SharedParameters
from shared.memory.parts.snapshot import LANE_DATA, LaneSnapshots, LearnerSnapshots
from shared.memory.plan import Plan
from shared.memory.region.arena import Arena
from shared.memory.region.layout import Layout


class Memory:
    """Typed views of every part of the region.

    Attributes:
        shared_parameters: those of workers; None: a learner learns.
        gateways: their reports; None: the run has none.
    """

    def __init__(self, arena: Arena, plan: Plan) -> None:
        """Bind all fields of the region in `arena`."""
        self.arena = arena
        self.plan = plan
        self.run_schedule = plan.run_schedule
        self.board = Board(arena, self.run_schedule)
        self.mailbox = Mailbox(arena, self.run_schedule)
        self.weights = PublishedWeights(arena)
        self.evaluations = Evaluations(arena)
        self.lane_snapshots = LaneSnapshots(arena)
        self.learner_snapshots = LearnerSnapshots(arena, self.run_schedule)
        self.ring = Ring(arena, self.run_schedule)
        self.shared_parameters = SharedParameters(arena) if self.run_schedule.workers else None
        self.gateways = Gateways(arena) if plan.elsewhere.actors else None

    def lane(self, lane: int) -> LaneMemory:
        """One lane's part of the region."""
        return LaneMemory(
            lane,
            board=self.board,
            mailbox=self.mailbox,
            ring=self.ring,
            snapshots=self.lane_snapshots,
            cell=self.plan.cell_of(lane),
        )

    @property
    def inexact_since(self) -> int:
        """First step from which the run is inexact; -1: it is exact."""
        nodes = -1 if self.gateways is None else self.gateways.inexact_step
        steps = [int(self.board.inexact_since[0]), self.board.env_inexact_since, nodes]
        return min((step for step in steps if step >= 0), default=-1)

    @classmethod
    def create(cls, plan: Plan, lanes: Collection[int] | None = None) -> Memory:
        """Make the region of a new run. Raises `ArenaError` when memory does not suffice.

        Args:
            lanes: those that will be played; only they get memory for frames and snapshots. Default: all.
        """
        layout = plan.layout
        unused = () if lanes is None else _lanes_but(lanes, plan, layout)
        memory = cls(Arena.create(layout, unused, plan.less_memory), plan)
        memory.board.clear(plan.first_owners())
        memory.weights.clear()
        memory.lane_snapshots.clear()
        memory.learner_snapshots.clear()
        if memory.shared_parameters is not None:
            memory.shared_parameters.clear()
        if memory.gateways is not None:
            memory.gateways.clear()
        return memory

    @classmethod
    def attach(cls, fd: int, plan: Plan, *, writable: bool = True) -> Memory:
        """The region behind a descriptor. Raises `LayoutError` if it is not that of the plan."""
        return cls(Arena.attach(fd, plan.layout, writable=writable), plan)


def _lanes_but(lanes: Collection[int], plan: Plan, layout: Layout) -> Iterator[tuple[int, int]]:
    """Offset and length of the frames and snapshots of all lanes but these."""
    names = [LANE_DATA, *(field.name for field in ring_fields(plan.run_schedule).values())]
    for offset, field_ in (layout.offsets[name] for name in names):
        part = field_.nbytes // plan.run_schedule.lanes
        for lane in set(range(plan.run_schedule.lanes)).difference(lanes):
            yield offset + lane * part, part
