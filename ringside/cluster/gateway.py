"""The seam: `Plan.elsewhere` names this module, whose `main` is a gateway and whose balancer divides the lanes.

A gateway process stands in an actor's place, and has its lanes played on a node. Gateways with a node share all cells,
or those that the actors of this machine do not play. A cell is the set of lanes that inference answers in one batch: on
a CPU it is answered only when all of it has asked, so it must be played in one place. Where no gateway has a node, the
actors of this machine play all. Nodes join and leave at boundaries, and no result depends on who plays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from ringside.cluster.connection import join
from ringside.cluster.remote_lanes import RemoteLanes
from ringside.run.lane_balance import Move, count_moves
from shared.errors import ConfigError, RunFailed
from shared.machine.allocation import greatest_share
from shared.memory.board import Phase
from shared.memory.plan import Plan, deal, divide
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter


def main(child_spec: ChildSpec) -> None:
    """Have the lanes of one gateway played until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    settings = memory.plan.elsewhere.settings
    with suppress(Stopped):
        try:
            join(settings["address"])
        except ConfigError as error:  # the launcher has checked it: a gateway that starts again may succeed
            raise RunFailed(str(error)) from error
        from ringside.cluster.ray_hosts import RayHosts

        hosts = RayHosts(settings["cores"], 0)
        RemoteLanes(memory, child_spec.number, waiter, child_spec.doorbells, hosts).run()
        memory.board.phase[child_spec.process] = Phase.DONE


class GatewayBalancer:
    """Writes the wanted owner of each lane to the board, and passes the sentences of gateways on."""

    def __init__(self, memory: Memory, note: Callable[[str], None]) -> None:
        """Give every gateway its share, before any process starts. `note` is called with each sentence of a gateway."""
        assert memory.gateways is not None, "the run has gateways"
        self._board, self._reports, self._plan, self._note = memory.board, memory.gateways, memory.plan, note
        self._gateways = range(self._plan.config.machine.actors, self._plan.actors)
        self._vacant = self._board.vacant[self._plan.processes.slice_of(Role.ACTOR)]
        self._owners = np.array(lane_owners(self._plan, self._gateways))
        self._board.lane_owner[:] = self._board.lane_wanted[:] = self._owners
        self._told = self._reports.notices.values.copy()

    def measure(self) -> list[Move]:
        """Look which gateways have a node; return the moves that are wanted from now on."""
        board = self._board
        owners = self._owners = count_moves(board, self._owners)
        self._pass_on()
        wanted = np.array(lane_owners(self._plan, [each for each in self._gateways if not self._vacant[each]]))
        changed = np.flatnonzero(wanted != board.lane_wanted)
        moves = [Move(int(owners[lane]), int(wanted[lane])) for lane in changed]
        board.lane_wanted[:] = wanted
        # An owner that waits for others learns of a change only when it is woken.
        return moves + [Move(move.taker, move.giver) for move in moves]

    def _pass_on(self) -> None:
        """Pass the new sentences of gateways on."""
        told = self._reports.notices.values.copy()
        for gateway in np.flatnonzero(told != self._told):
            for sentence in self._reports.sentences(int(gateway), int(self._told[gateway]), int(told[gateway])):
                self._note(sentence)
        self._told = told


make_balancer = GatewayBalancer


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
