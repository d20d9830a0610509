"""A place on a node for the group of one gateway: sought, examined, and left out where the node does not suit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

from ringside.cluster.fingerprint import difference, fingerprint
from ringside.cluster.groups.group_host import GroupError, GroupHost
from ringside.cluster.hosts import Host, Hosts, NodeLost
from ringside.cluster.program_host import Node
from shared.errors import RingsideError
from shared.machine.facts import processor
from shared.memory.run_memory import Memory
from shared.memory.wait import Waiter

PROBE_SECONDS = 180.0
"""Time without an answer after which a node counts as lost that is examined, for which it computes a while
(ringside/cluster/numerics.py)."""
PLACE_SECONDS = 10.0
"""Wait for a free node after which the lanes go to other gateways, or to the actors of this machine."""
POLL_SECONDS = 0.25
"""Longest wait for a place in one call."""
LEAVING_SECONDS = 1.0
"""Between two questions if the node was told to leave."""


class UnsuitableNode(RingsideError):
    """A node must not play. The message is a sentence."""


class NodePlace:
    """The place of one gateway's group.

    Attributes:
        actor: number of the gateway among the actors.
        number: the same among the gateways.
        hosts: the cluster.
        host: the group, placed or not; None: no place is sought.
        name: of the newest node; empty: there was none.
        same_bits: True if the node computes the bits of this machine; once it is examined.
    """

    def __init__(
        self,
        memory: Memory,
        actor: int,
        waiter: Waiter,
        hosts: Hosts,
        cores: int,
        *,
        numerics: str,
        mixed: bool,
        note: Callable[[str], None],
    ) -> None:
        """Nothing is sought yet.

        Args:
            cores: CPUs for the group.
            numerics: hash of what this machine computes.
            mixed: accept nodes with another hash; the run is inexact then.
            note: is called with a sentence about each event.
        """
        self.actor, self.number = actor, actor - memory.plan.config.machine.actors
        self.host: Host | None = None
        self.name = ""
        self.same_bits = True
        self._plan, self._waiter, self._note = memory.plan, waiter, note
        self.hosts, self._cores, self._numerics, self._mixed = hosts, cores, numerics, mixed
        assert memory.gateways is not None, "the run has gateways"
        self._report = memory.gateways
        self._vacant = memory.board.vacant[waiter.process : waiter.process + 1]
        self._placed = self._suits = False
        self._sought_since: float | None = None
        """None: there is a node that suits."""
        self._leaving, self._looked_at = False, -math.inf

    def find(self) -> bool:
        """Wait a moment for a node; True if there is one. Without one for too long the gateway is vacant.

        Raises:
            NodeLost: the node was lost. UnsuitableNode: it has other software; leave it out.
        """
        if self.host is None:
            self.host = self.hosts.place(GroupHost, self._plan, self._cores)
            self._sought_since = self._sought_since or time.monotonic()
        if self._placed:
            return True
        if not self._await(self.host):
            self._tell_vacancy()
            return False
        node: Node = self.host.call("describe", seconds=PROBE_SECONDS, meanwhile=self._waiter.heartbeat)
        self.name = node.name
        if sentence := difference(node.name, node.software, fingerprint()):
            raise UnsuitableNode(sentence)
        self._node, self._placed = node, True
        return True

    def examine(self) -> None:
        """Compare the bits that a new node computes with those of this machine. It takes seconds.

        Raises:
            NodeLost: the node was lost. UnsuitableNode: it does not suit; leave it out.
        """
        if self._suits:
            return
        assert self.host is not None, "there is a node"
        try:
            numerics = self.host.call("probe", seconds=PROBE_SECONDS, meanwhile=self._waiter.heartbeat)
        except GroupError as error:
            raise UnsuitableNode(str(error)) from error
        self.same_bits = numerics == self._numerics
        if not self.same_bits:
            if not self._mixed:
                raise UnsuitableNode(other_bits(self._node))
            self._note(f"Node {self.name} computes other last bits than this machine: the run is inexact from here on.")
        self._suits, self._sought_since = True, None
        self._vacant[0] = 0
        self._report.write_name(self.number, self.name)
        self._note(f"Lanes of actor {self.actor} are played on node {self.name}.")

    def is_leaving(self) -> bool:
        """True if the node was told to leave the cluster; looked up from time to time. Raises `NodeLost`."""
        now = time.monotonic()
        if self._placed and not self._leaving and now - self._looked_at >= LEAVING_SECONDS:
            assert self.host is not None, "there is a node"
            self._looked_at, self._leaving = now, self.host.is_leaving()
        return self._leaving

    def leave_out(self, sentence: str) -> None:
        """Give the node up for good, for the reason that the sentence says."""
        self._note(f"{sentence} It is left out.")
        assert self.host is not None, "it was on a node"
        with suppress(NodeLost):  # then it is gone anyway
            self.hosts.leave_out(self.host)
        self.release()
        self.seek_again()

    def seek_again(self) -> None:
        """Go on with the search for a node; the gateway is vacant if it has lasted for too long."""
        self._sought_since = self._sought_since or time.monotonic()
        self._tell_vacancy()

    def release(self, *, gently: bool = False) -> None:
        """Give the place back, if there is one."""
        if self.host is not None:
            self.host.release(gently=gently)
        self.host, self.name = None, ""
        self._placed = self._suits = self._leaving = False
        self._report.write_name(self.number, "")

    def _await(self, host: Host) -> bool:
        """Wait a moment for the place; True if it is there."""
        deadline = time.monotonic() + POLL_SECONDS
        self._waiter.wait(lambda: host.ready(0.0) or time.monotonic() > deadline)
        return host.ready(0.0)

    def _tell_vacancy(self) -> None:
        """Say that there is no node, if the search has lasted for too long; others get the lanes."""
        assert self._sought_since is not None, "there is a search"
        if time.monotonic() - self._sought_since > PLACE_SECONDS and not self._vacant[0]:
            self._note(f"There is no free node for actor {self.actor}: its lanes are played elsewhere.")
            self._vacant[0] = 1


def other_bits(node: Node) -> str:
    """Sentence about a node that rounds differently."""
    return (
        f"Node {node.name} ({node.processor}) computes other last bits than this machine ({processor()}): the run "
        "would not be exact. Use nodes with the same type of processor, or pass --mixed-numerics."
    )
