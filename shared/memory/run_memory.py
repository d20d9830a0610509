"""The shared region of one run, as its processes see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shared.memory.arena import Arena
from shared.memory.board import Board
from shared.memory.evaluation_queue import Evaluations
from shared.memory.gateways import Gateways
from shared.memory.layout import Layout
from shared.memory.mailbox import Mailbox, request_number
from shared.memory.plan import Plan
from shared.memory.publication import PublishedWeights
from shared.memory.ring import Ring, ring_fields
from shared.memory.shared_parameters import SharedParameters
from shared.memory.snapshot import LANE_DATA, LaneSnapshots, LearnerSnapshots


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
        return LaneMemory(self, lane)

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
        parts = (memory.weights, memory.lane_snapshots, memory.learner_snapshots)
        for part in (*parts, memory.shared_parameters, memory.gateways):
            if part is not None:
                part.clear()
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


class LaneMemory:
    """Ring slots, mailbox, counters and snapshots of one lane: all that its owner reads and writes.

    Attributes:
        index: number of the lane.
        slot: the ring's fields of this lane, [capacity, lane_envs, ...], by name.
        actions: uint8[lane_envs], of the reply.
        declared: the fields of the reply beside the actions, [lane_envs, ...], by name.
        logged: ticks whose actions are in the ring.
        done: ticks whose results are in the ring.
        finished: rounds that are whole, with their snapshots.
    """

    def __init__(self, memory: Memory, lane: int) -> None:
        board, mailbox = memory.board, memory.mailbox
        self.index = lane
        self.slot = {name: view[lane] for name, view in memory.ring.field.items()}
        self.actions = mailbox.actions[lane]
        self.declared = {name: view[lane] for name, view in mailbox.declared.items()}
        self.logged, self.done = board.lane_logged.at(lane), board.lane_done.at(lane)
        self.finished = board.lane_finished.at(lane)
        self._request, self._reply = mailbox.request.at(lane), mailbox.reply.at(lane)
        self._board, self._mailbox, self._snapshots = board, mailbox, memory.lane_snapshots
        self._cell = memory.plan.cell_of(lane)

    # --- owners

    def begin_life(self) -> int:
        """Increment the life of the lane and return it, so that no reply to a former life is taken."""
        self._board.lane_life[self.index] += 1
        return int(self._board.lane_life[self.index])

    @property
    def wanted_owner(self) -> int:
        """The actor that should own the lane."""
        return int(self._board.lane_wanted[self.index])

    def hand_over(self, actor: int) -> None:
        """Make another actor the owner. This is the last write of an owner: from here on the lane is the other's."""
        self._board.lane_owner[self.index] = actor

    # --- repetition

    @property
    def repeats(self) -> bool:
        """True unless an env of the run is known not to repeat itself."""
        return self._board.env_inexact_since < 0

    def note_inexact(self, step: int) -> None:
        """Note that the lane's env did not repeat itself at a step."""
        self._board.lane_inexact[self.index] = step

    # --- requests

    def ask(self, life: int, tick: int) -> None:
        """Ask for the actions of `tick`, whose frames are in the ring."""
        self._request.publish(request_number(life, tick))

    @property
    def answered(self) -> bool:
        """True if the reply to the newest request is there."""
        return self._reply.read() == self._request.read()

    @property
    def cell_asks(self) -> bool:
        """True if all lanes of the cell have asked; a stale read may miss one."""
        return bool((self._mailbox.request.values[self._cell] != self._mailbox.reply.values[self._cell]).all())

    # --- snapshots

    def is_snapshot(self, boundary: int) -> bool:
        """True if the lane keeps a snapshot at `boundary`."""
        return self._board.is_snapshot(boundary)

    def newest_snapshot(self) -> int:
        """Boundary of the newest whole snapshot; -1: none."""
        return self._snapshots.newest(self.index)

    def read_snapshot(self, boundary: int) -> bytes | None:
        """The snapshot at `boundary`; None: it does not exist, or no longer."""
        return self._snapshots.read(self.index, boundary)

    def write_snapshot(self, boundary: int, data: bytes) -> None:
        """Keep the snapshot at `boundary`."""
        self._snapshots.write(self.index, boundary, data)
