"""Division of the lanes among gateways, which have them played on other nodes (ringside/cluster/groups).

Gateways with a node share all cells, or those that the actors of this machine do not play. A cell is the set of lanes
that inference answers in one batch: on a CPU it is answered only when all of it has asked, so it must be played in one
place. Where no gateway has a node, the actors of this machine play all. Nodes join and leave at boundaries, and no
result depends on who plays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringside.supervisor.lane_balance import Move, count_moves
from shared.memory.parts.board import Board
from shared.memory.parts.gateways import Gateways
from shared.memory.plan import Plan
from shared.memory.process_table import Role


class GatewayBalancer:
    """Writes the wanted owner of each lane to the board, and passes the sentences of gateways on."""

    def __init__(self, board: Board, gateways: Gateways, plan: Plan, note: Callable[[str], None]) -> None:
        """`note` is called with each sentence of a gateway."""
        self._board, self._gateways, self._plan, self._note = board, gateways, plan, note
        self._actors = plan.processes.slice_of(Role.ACTOR)
        self._owners = board.lane_owner.copy()
        self._told = gateways.notices.values.copy()

    def measure(self) -> list[Move]:
        """Look which gateways have a node; return the moves that are wanted from now on."""
        board = self._board
        owners = self._owners = count_moves(board, self._owners)
        self._pass_on()
        vacant = board.vacant[self._actors]
        active = [actor for actor in range(len(vacant)) if self._plan.is_gateway(actor) and not vacant[actor]]
        wanted = np.array(self._plan.owners_with(active))
        changed = np.flatnonzero(wanted != board.lane_wanted)
        moves = [Move(int(owners[lane]), int(wanted[lane])) for lane in changed]
        board.lane_wanted[:] = wanted
        # An owner that waits for others learns of a change only when it is woken.
        return moves + [Move(move.taker, move.giver) for move in moves]

    def _pass_on(self) -> None:
        """Pass the new sentences of gateways on."""
        told = self._gateways.notices.values.copy()
        for gateway in np.flatnonzero(told != self._told):
            for sentence in self._gateways.sentences(int(gateway), int(self._told[gateway]), int(told[gateway])):
                self._note(sentence)
        self._told = told
