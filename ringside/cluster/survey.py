"""Survey of a cluster for a run, for `doctor --ray`: each node's software, arithmetic and link to this machine."""

from __future__ import annotations

import timeit
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from ringside.cluster.connection import ClusterNode, connected, nodes_with_cpus
from ringside.cluster.group_host import GroupHost
from ringside.cluster.hosts import Host, NodeLost
from ringside.cluster.node_object import Node, fingerprint, numerics
from ringside.cluster.remote_lanes import BEGIN_SECONDS, EXAMINE_SECONDS
from shared.errors import RunFailed
from shared.memory.plan import Plan
from shared.text import count, readable

PLACE_SECONDS = 60.0
"""Longest start of a process on a node."""
_TRANSFERS = 5


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
        nodes = nodes_with_cpus()
        hosts = [RayHosts(0, 0, node.identity).place(GroupHost, plan, node.cpus) for node in nodes]
        return [examine_node(node, host, plan, own) for node, host in zip(nodes, hosts, strict=True)]


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
        if sentence := node.difference(fingerprint()):
            return Finding(address, False, sentence)
        if host.call("probe", seconds=EXAMINE_SECONDS) != own:
            return Finding(address, False, node.other_bits)
        parameters = np.zeros(plan.parameters.count, np.float32)
        call = partial(host.call, "receive", parameters, seconds=BEGIN_SECONDS)
        transfer, round_steps = median(timeit.repeat(call, number=1, repeat=_TRANSFERS)), plan.run_schedule.round_steps
        return Finding(
            address,
            True,
            f"{node.name}: {count(place.cpus, 'CPU')}, the same software and arithmetic. The parameters "
            f"({parameters.nbytes / 1e6:.1f} MB, once a round) take {1e3 * transfer:.0f} ms. So rounds of "
            f"{round_steps:,} steps allow at most {readable(round_steps / transfer)} steps/s.",
        )
    except NodeLost as lost:
        return Finding(address, False, f"Node {address} {lost}.")
    except RunFailed as error:
        return Finding(address, False, str(error))
    finally:
        host.release(gently=True)
