"""Overhead of a round on nodes: the time of rounds in which there is next to nothing to play, on real Ray.

    python -m tests.ringside.cluster.round_overhead [--nodes 2] [--rounds 100] [--precision bf16] [--own-copies]

Parameters go to the nodes, 17 ticks of 8 envs that only count come back in parcels, and are written into the ring. With
`--own-copies` each gateway puts the parameters for itself. Nodes are raylets of this machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from ringside.cluster.connection import disconnect, join
from ringside.cluster.fingerprint import fingerprint
from ringside.cluster.groups.group_host import GroupHost
from ringside.cluster.groups.parameters import ParameterCoding
from ringside.cluster.hosts import Host, Hosts
from ringside.cluster.program_host import Node
from shared.memory.run_memory import Memory
from tests.support.ray_cluster import ray_cluster
from tests.support.remote_world import NUMERICS, ROUND_TICKS, PlayedGroup, RemoteWorld

WARM_UP = 10
"""First rounds, which do not count."""


class CountingGroup(PlayedGroup):
    """A group that plays a round at once."""

    def describe(self) -> Node:
        """This machine."""
        return Node("here", fingerprint(), "CPU")

    def probe(self) -> str:
        """The bits of the head."""
        return NUMERICS

    def _living(self) -> Memory:
        for _ in range(ROUND_TICKS):
            memory = super()._living()
        return memory


def counting(hosts: Hosts) -> Hosts:
    """The cluster, which places groups that count."""
    place = hosts.place

    def place_counting(kind: type, *arguments: Any) -> Host:
        assert kind is GroupHost
        return place(CountingGroup, *arguments)

    hosts.place = place_counting  # type: ignore[method-assign]
    return hosts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--network", default="nature")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of acting")
    parser.add_argument("--own-copies", action="store_true")
    options = parser.parse_args()
    begun: list[float] = []
    with ray_cluster(nodes=options.nodes) as cluster:
        join(cluster.address)
        from ringside.cluster.ray_hosts import RayHosts

        hosts = counting(RayHosts(1, 0, exchange="" if options.own_copies else "overhead"))
        rounds, settings = WARM_UP + options.rounds, {"network": options.network, "precision": options.precision}
        world = RemoteWorld(options.nodes, hosts, rounds=rounds, **settings)
        try:
            world.run(lambda version: begun.append(time.perf_counter()))
        finally:
            disconnect()
    assert world.memory.gateways is not None, "the run has gateways"
    parameters = ParameterCoding(world.plan).bytes
    times = [1e3 * (after - before) for before, after in zip(begun[WARM_UP:], begun[WARM_UP + 1 :], strict=False)]
    transfers = world.memory.gateways.transfer_ns / 1e6 / len(begun)
    ordered = sorted(times)
    print(
        f"{options.nodes} nodes, {parameters / 1e6:.1f} MB of parameters: a round {statistics.median(times):.0f} ms "
        f"(best {ordered[0]:.0f}, 90% within {ordered[int(0.9 * len(ordered))]:.0f}); parameters at the node after "
        f"{', '.join(f'{each:.0f}' for each in transfers)} ms in the mean"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
