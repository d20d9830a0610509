"""One lane's part of the shared memory: all that its owner reads and writes while it plays the lane."""

from __future__ import annotations

from shared.memory.parts.board import Board
from shared.memory.parts.mailbox import Mailbox, request_number
from shared.memory.parts.ring import Ring
from shared.memory.parts.snapshot import LaneSnapshots


class LaneMemory:
    """Ring slots, mailbox, counters and snapshots of one lane.

    Attributes:
        index: number of the lane.
        slot: the ring's fields of this lane, [capacity, lane_envs, ...], by name.
        actions: uint8[lane_envs], of the reply.
        declared: the fields of the reply beside the actions, [lane_envs, ...], by name.
        logged: ticks whose actions are in the ring.
        done: ticks whose results are in the ring.
        finished: rounds that are whole, with their snapshots.
    """

    def __init__(
        self,
        lane: int,
        *,
        board: Board,
        mailbox: Mailbox,
        ring: Ring,
        snapshots: LaneSnapshots,
        cell: slice,
    ) -> None:
        """`cell` are the lanes that must all have asked before inference answers this one."""
        self.index = lane
        self.slot = {name: view[lane] for name, view in ring.field.items()}
        self.actions = mailbox.actions[lane]
        self.declared = {name: view[lane] for name, view in mailbox.declared.items()}
        self.logged = board.lane_logged.at(lane)
        self.done = board.lane_done.at(lane)
        self.finished = board.lane_finished.at(lane)
        self._request = mailbox.request.at(lane)
        self._reply = mailbox.reply.at(lane)
        self._cell = cell
        self._board, self._mailbox, self._snapshots = board, mailbox, snapshots

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
        return self._mailbox.all_ask(self._cell)

    # --- snapshots

    def is_snapshot(self, boundary: int) -> bool:
        """True if the lane keeps a snapshot at `boundary`."""
        return self._board.is_snapshot(boundary)

    def is_last(self, boundary: int) -> bool:
        """True if the run ends at `boundary`."""
        return self._board.is_last(boundary)

    def newest_snapshot(self) -> int:
        """Boundary of the newest whole snapshot; -1: none."""
        return self._snapshots.newest(self.index)

    def read_snapshot(self, boundary: int) -> bytes | None:
        """The snapshot at `boundary`; None: it does not exist, or no longer."""
        return self._snapshots.read(self.index, boundary)

    def write_snapshot(self, boundary: int, data: bytes) -> None:
        """Keep the snapshot at `boundary`."""
        self._snapshots.write(self.index, boundary, data)
