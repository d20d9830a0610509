"""Division of the lanes among gateways, which have them played on other nodes.

Gateways with a node share all cells, or those that the actors of this machine do not play. A cell is the set of lanes
that inference answers in one batch: on a CPU it is answered only when all of it has asked, so it must be played in one
place. Where no gateway has a node, the actors of this machine play all. Nodes join and leave at boundaries, and no
result depends on who plays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ringside.supervisor.lane_balance import Move, count_moves
from shared.machine.allocation import greatest_share
from shared.memory.plan import Plan, deal, divide
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory


class GatewayBalancer:
    """Writes the wanted owner of each lane to the board, and passes the sentences of gateways on."""

    def __init__(self, memory: Memory, note: Callable[[str], None]) -> None:
        """Give every gateway its share, before any process starts. `note` is called with each sentence of a gateway."""
        assert memory.gateways is not None, "the run has gateways"
        self._board, self._gateways, self._plan, self._note = memory.board, memory.gateways, memory.plan, note
        self._actors = self._plan.processes.slice_of(Role.ACTOR)
        own = self._plan.config.machine.actors
        self._owners = np.array(lane_owners(self._plan, range(own, self._plan.actors)))
        self._board.lane_owner[:] = self._board.lane_wanted[:] = self._owners
        self._told = self._gateways.notices.values.copy()

    def measure(self) -> list[Move]:
        """Look which gateways have a node; return the moves that are wanted from now on."""
        board, own = self._board, self._plan.config.machine.actors
        owners = self._owners = count_moves(board, self._owners)
        self._pass_on()
        vacant = board.vacant[self._actors]
        wanted = np.array(lane_owners(self._plan, [actor for actor in range(own, len(vacant)) if not vacant[actor]]))
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


def lane_owners(plan: Plan, gateways: Sequence[int]) -> list[int]:
    """Owner of each lane when these gateways have nodes, as even as can be.

    Gateways get whole cells. Where it is to play, the head has its share of them; without gateways they have all.
    """
    lanes, own = plan.run_schedule.lanes, range(plan.config.machine.actors)
    if not gateways:
        return deal(lanes, own)
    cells, share = lanes // plan.cell_lanes, plan.elsewhere.settings["head_share"]
    kept = cells_of_head(cells, len(gateways), share) if share else 0
    rest = divide(cells - kept, gateways)
    return deal(kept * plan.cell_lanes, own) + [gateway for gateway in rest for _ in range(plan.cell_lanes)]


def cells_of_head(cells: int, groups: int, share: float) -> int:
    """Cells that the actors of the head play beside groups on nodes, so that the slowest place is done soonest.

    Args:
        cells: of the run, more than groups; every place has one at least.
        groups: on nodes, at least one, which share the other cells.
        share: speed of the head's actors, where that of a group is 1.
    """
    return min(range(1, cells - groups + 1), key=lambda own: max(own / share, greatest_share(cells - own, groups)))
