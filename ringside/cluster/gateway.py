"""The gateway process: stands in an actor's place, and has its lanes played on a node of a Ray cluster.

`Plan.elsewhere` names this module: `main` is a gateway, and `make_balancer` divides the lanes.
"""

from __future__ import annotations

from contextlib import suppress

from ringside.cluster.connection import disconnect, join
from ringside.cluster.gateway_balance import GatewayBalancer as make_balancer
from ringside.cluster.node_place import NodePlace
from ringside.cluster.remote_lanes import RemoteLanes
from shared.errors import ConfigError, RunFailed
from shared.memory.parts.board import Phase
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter

__all__ = ["main", "make_balancer"]


def main(child_spec: ChildSpec) -> None:
    """Have the lanes of one gateway played until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    settings = memory.plan.elsewhere.settings
    with suppress(Stopped):
        try:
            join(settings["address"])
        except ConfigError as error:  # the launcher has checked it: a gateway that starts again may succeed
            raise RunFailed(str(error)) from error
        try:
            from ringside.cluster.ray_hosts import RayHosts

            place = NodePlace(memory, child_spec.number, waiter, RayHosts(settings["cores"], 0))
            RemoteLanes(memory, place, waiter, child_spec.doorbells).run()
        finally:
            disconnect()
        memory.board.phase[child_spec.process] = Phase.DONE
