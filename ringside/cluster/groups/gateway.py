"""The gateway process: stands in an actor's place, and has its lanes played on a node of a Ray cluster."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from ringside.cluster.connection import disconnect, join
from ringside.cluster.groups.node_place import NodePlace
from ringside.cluster.groups.remote_lanes import RemoteLanes
from ringside.cluster.hosts import Hosts
from shared.errors import ConfigError, RunFailed
from shared.files.disk_trouble import log_line
from shared.memory.parts.board import Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter

CLUSTER = "RINGSIDE_CLUSTER"
"""Variable with the address of the cluster, set by the launcher."""
CORES = "RINGSIDE_CLUSTER_CORES"
"""Variable with the number of CPUs of a group."""
NUMERICS = "RINGSIDE_CLUSTER_NUMERICS"
"""Variable with the hash of what the head computes."""
EXCHANGE = "RINGSIDE_CLUSTER_EXCHANGE"
"""Variable with the name under which the gateways of the run share parameters."""
MIXED = "RINGSIDE_CLUSTER_MIXED"
"""Variable that is not empty where nodes with another hash are accepted."""


def main(child_spec: ChildSpec) -> None:
    """Have the lanes of one gateway played until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    cores = int(os.environ[CORES])
    with suppress(Stopped):
        hosts = _connect(cores, alone=memory.plan.gateways == 1)
        try:
            note = partial(_note, memory, child_spec.number)
            numerics, mixed = os.environ[NUMERICS], bool(os.environ[MIXED])
            place = NodePlace(
                memory, child_spec.number, waiter, hosts, cores, numerics=numerics, mixed=mixed, note=note
            )
            doorbells = child_spec.doorbells
            lanes = RemoteLanes(
                memory,
                place,
                waiter,
                learner=doorbells[Role.LEARNER],
                inference=doorbells[Role.INFERENCE],
                actors=doorbells.actors,
                note=note,
            )
            lanes.run()
        finally:
            disconnect()
        memory.board.phase[child_spec.process] = Phase.DONE


def _connect(cores: int, *, alone: bool) -> Hosts:
    """Join the cluster that the launcher has checked. `alone`: the run has no other gateway.

    Raises `RunFailed` if that fails now: a gateway that starts again may succeed.
    """
    try:
        join(os.environ[CLUSTER])
    except ConfigError as error:
        raise RunFailed(str(error)) from error
    from ringside.cluster.ray_hosts import RayHosts

    return RayHosts(cores, 0, exchange="" if alone else os.environ[EXCHANGE])


def _note(memory: Memory, actor: int, sentence: str) -> None:
    """Write a sentence into the log, and have the launcher show it."""
    log_line(sentence)
    assert memory.gateways is not None, "the run has gateways"
    memory.gateways.tell(actor - memory.plan.config.machine.actors, sentence)
