"""The seam: `Plan.elsewhere` names this module, whose `main` is a gateway and whose balancer divides the lanes.

A gateway process stands in an actor's place, and has its lanes played on a node. Gateways with a node share all cells,
or those that the actors of this machine do not play. A cell is the set of lanes that inference answers in one batch: on
a CPU it is answered only when all of it has asked, so it must be played in one place. Where no gateway has a node, the
actors of this machine play all. Nodes join and leave at boundaries, and no result depends on who plays.

`with_gateways` places a run in a cluster: the number of its gateways, the CPUs of each group, and what gateways must
know.

`survey` is for `doctor --ray`: each node's software and arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ringside.cluster.connection import ClusterNode, cluster_address, connected, join, nodes_with_cpus
from ringside.cluster.group_host import GroupHost, group_actors
from ringside.cluster.node_object import Host, Node, NodeLost, fingerprint, numerics
from ringside.cluster.remote_lanes import EXAMINE_SECONDS, RemoteLanes
from ringside.run.lane_balance import count_moves
from shared.config.resolve import greatest_share
from shared.errors import ConfigError, RunFailed
from shared.memory.board import Phase
from shared.memory.plan import Elsewhere, Plan, deal, divide
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter
from shared.text import count, flag_of, refused

PLACE_SECONDS = 60.0
"""Longest start of a process on a node."""


class Finding(NamedTuple):
    """Result for one node."""

    node: str
    """Its address."""
    suits: bool
    """True if the run can be played there."""
    found: str
    """A sentence."""


def survey(plan: Plan, address: str, *, insecure: bool) -> list[Finding]:
    """Findings of all nodes with CPUs of a cluster.

    Raises:
        ConfigError: the cluster is refused. RunFailed: this machine cannot compute the network.
    """
    with connected(address, insecure=insecure):
        from ringside.cluster.ray_hosts import RayHosts

        own = numerics(plan)
        places = [(node, RayHosts(0, 0, node.identity)) for node in nodes_with_cpus()]
        # One after another: an object that waits for its first call ends with its lease.
        return [examine_node(node, hosts.place(GroupHost, plan, node.cpus), plan, own) for node, hosts in places]


def examine_node(place: ClusterNode, host: Host, plan: Plan, own: str) -> Finding:
    """Finding of one node.

    Args:
        place: the node.
        host: a group there.
        plan: of the run.
        own: hash of what this machine computes.
    """
    address = place.address
    try:
        if not host.ready(PLACE_SECONDS):
            return Finding(address, False, f"Node {address} starts no process within {PLACE_SECONDS:.0f} s.")
        node: Node = host.call("describe", seconds=EXAMINE_SECONDS)
        other = node.difference(fingerprint())
        if other is None and host.call("probe", seconds=EXAMINE_SECONDS) != own:
            other = node.other_bits
        same = f"{node.name}: {count(place.cpus, 'CPU')}, the same software and arithmetic."
        return Finding(address, other is None, other or same)
    except (NodeLost, RunFailed) as error:
        return Finding(address, False, f"Node {address} {error}." if isinstance(error, NodeLost) else str(error))
    finally:
        host.release(gently=True)


def with_gateways(
    plan: Plan, address: str, nodes: int | None, *, head_plays: bool, insecure: bool, mixed: bool
) -> Plan:
    """The plan with a gateway for each node.

    Args:
        address: "auto" or HOST:PORT.
        nodes: number of groups; None: one for each node that has CPUs.
        head_plays: have this machine's actors play too, cells in proportion to their number.
        insecure: accept a cluster without a token.
        mixed: accept nodes that compute other bits than this machine.

    Raises:
        ConfigError: the cluster is refused, or the run cannot be played on it. RunFailed: this machine cannot compute
            the network.
    """
    _require_playable(plan)
    if nodes is not None and nodes < 1:
        raise ConfigError(f"--nodes {nodes} must be at least 1.")
    cluster_address(address)  # which is refused before seconds of work
    with ThreadPoolExecutor(max_workers=1) as thread:
        own = thread.submit(numerics, plan)  # takes seconds, as the connection does
        with connected(address, insecure=insecure) as found:
            cpus = [node.cpus for node in nodes_with_cpus()]
    if not cpus:
        raise ConfigError(f"No node of the cluster at {found} has CPUs: join one with `ray start --address {found}`.")
    share = plan.config.machine.actors / group_actors(plan, min(cpus)) if head_plays else 0.0
    gateways = len(cpus) if nodes is None else nodes
    require_cells(plan, gateways, head_plays=head_plays)
    settings = {"address": found, "cores": min(cpus), "numerics": own.result(), "mixed": mixed, "head_share": share}
    return replace(plan, elsewhere=Elsewhere(gateways, "ringside.cluster.gateway", settings))


def _require_playable(plan: Plan) -> None:
    """Raise `ConfigError` if nodes cannot play for this run."""
    schedule, device = plan.config.learn.schedule, plan.config.machine.acts_on
    if schedule != "concurrent":
        raise ConfigError(f"--schedule {schedule} cannot be played on other nodes: omit --ray.")
    if device != "cpu":
        raise ConfigError(
            f"Nodes play on their CPUs, and the inference server is on {device}: pass --acting-device cpu."
        )
    if not plan.env_repeats:
        raise ConfigError(f"--ray cannot play {plan.config.play.env}, which does not repeat itself: omit --ray.")


def require_cells(plan: Plan, gateways: int, *, head_plays: bool) -> None:
    """Raise `ConfigError` unless every gateway can have a cell, and this machine where it is to play."""
    cells, batch = plan.run_schedule.lanes // plan.cell_lanes, plan.config.machine.inference_batch
    most = cells - head_plays
    if most < gateways:
        fewer = f"pass --nodes {most}, or an" if most else "pass an"
        raise ConfigError(
            f"{count(cells, 'cell')} of {count(plan.cell_lanes * plan.config.play.lane_envs, 'env')} cannot occupy "
            f"{count(gateways, 'node')}{' and this machine' if head_plays else ''}: {fewer} "
            f"{flag_of('inference_batch')} below {batch}, which changes the last bits."
        )


def main(child_spec: ChildSpec) -> None:
    """Have the lanes of one gateway played until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    settings = memory.plan.elsewhere.settings
    with suppress(Stopped):
        # The launcher has checked it: a gateway that starts again may succeed.
        with refused("The cluster cannot be joined now.", ConfigError, RunFailed):
            join(settings["address"])
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

    def measure(self) -> list[int]:
        """Look which gateways have a node, and write the owners that are wanted from now on.

        Return the actors to wake: givers and takers, since one that waits for others does not look.
        """
        board = self._board
        owners = self._owners = count_moves(board, self._owners)
        self._pass_on()
        wanted = np.array(lane_owners(self._plan, [each for each in self._gateways if not self._vacant[each]]))
        changed = np.flatnonzero(wanted != board.lane_wanted)
        board.lane_wanted[:] = wanted
        return np.concatenate([owners[changed], wanted[changed]]).tolist()

    def _pass_on(self) -> None:
        """Pass the new sentences of gateways on."""
        told = self._reports.notices.values.copy()
        for gateway in np.flatnonzero(told != self._told):
            for sentence in self._reports.sentences(int(gateway), int(self._told[gateway]), int(told[gateway])):
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
