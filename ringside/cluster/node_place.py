"""A place on a node for the group of one gateway: sought, examined, and left out where the node does not suit."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from ringside.cluster.group_host import GroupHost
from ringside.cluster.hosts import Host, Hosts, NodeLost
from ringside.cluster.node_object import Node, fingerprint
from shared.errors import RingsideError, RunFailed
from shared.files.disk_trouble import log_line
from shared.memory.run_memory import Memory
from shared.memory.wait import Waiter

EXAMINE_SECONDS = 180.0
"""Time without an answer after which a node counts as lost that is examined, for which it computes a while."""
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
        report: fields of the gateways.
        host: the group, placed or not; None: no place is sought.
        node: of the group; None: it is not placed yet.
        name: of the newest node; empty: there was none.
        same_bits: True if the node computes the bits of this machine; once it is examined.
    """

    def __init__(self, memory: Memory, actor: int, waiter: Waiter, hosts: Hosts) -> None:
        """Nothing is sought yet."""
        self.actor, self.number = actor, actor - memory.plan.config.machine.actors
        assert memory.gateways is not None, "the run has gateways"
        self.report = memory.gateways
        self.host: Host | None = None
        self.node: Node | None = None
        self.name, self.same_bits = "", True
        self._plan, self._waiter, self._hosts, self._suits = memory.plan, waiter, hosts, False
        self._settings = memory.plan.elsewhere.settings
        self._vacant = memory.board.vacant[waiter.process : waiter.process + 1]
        self._sought_since: float | None = None
        """None: there is a node that suits."""
        self._leaving, self._looked_at = False, -math.inf

    def note(self, sentence: str) -> None:
        """Write a sentence into the log, and have the launcher show it."""
        log_line(sentence)
        self.report.tell(self.number, sentence)

    def find(self) -> bool:
        """Wait a moment for a node; True if there is one. Without one for too long the gateway is vacant.

        Raises:
            NodeLost: the node was lost. UnsuitableNode: it has other software; leave it out.
        """
        if self.host is None:
            self.host = self._hosts.place(GroupHost, self._plan, self._settings["cores"])
            self._sought_since = self._sought_since or time.monotonic()
        if self.node is not None:
            return True
        host, deadline = self.host, time.monotonic() + POLL_SECONDS
        self._waiter.wait(lambda: host.ready(0.0) or time.monotonic() > deadline)
        if not host.ready(0.0):
            self._tell_vacancy()
            return False
        node: Node = host.call("describe", seconds=EXAMINE_SECONDS, meanwhile=self._waiter.heartbeat)
        self.name = node.name
        if sentence := node.difference(fingerprint()):
            raise UnsuitableNode(sentence)
        self.node = node
        return True

    def examine(self) -> None:
        """Compare the bits that a new node computes with those of this machine. It takes seconds.

        Raises:
            NodeLost: the node was lost. UnsuitableNode: it does not suit; leave it out.
        """
        if self._suits:
            return
        assert self.host is not None, "there is a node"
        assert self.node is not None, "it is described"
        try:
            found = self.host.call("probe", seconds=EXAMINE_SECONDS, meanwhile=self._waiter.heartbeat)
        except RunFailed as error:
            raise UnsuitableNode(str(error)) from error
        self.same_bits = found == self._settings["numerics"]
        if not self.same_bits:
            if not self._settings["mixed"]:
                raise UnsuitableNode(self.node.other_bits)
            self.note(f"Node {self.name} computes other last bits than this machine: the run is inexact from here on.")
        self._suits, self._sought_since = True, None
        self._vacant[0] = 0
        self.report.write_name(self.number, self.name)
        self.note(f"Lanes of actor {self.actor} are played on node {self.name}.")

    def is_leaving(self) -> bool:
        """True if the node was told to leave the cluster; looked up from time to time. Raises `NodeLost`."""
        now = time.monotonic()
        if self.node is not None and not self._leaving and now - self._looked_at >= LEAVING_SECONDS:
            assert self.host is not None, "there is a node"
            self._looked_at, self._leaving = now, self.host.is_leaving()
        return self._leaving

    def leave_out(self, sentence: str) -> None:
        """Give the node up for good, for the reason that the sentence says."""
        self.note(f"{sentence} It is left out.")
        assert self.host is not None, "it was on a node"
        with suppress(NodeLost):  # then it is gone anyway
            self._hosts.leave_out(self.host)
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
        self.host, self.node, self.name = None, None, ""
        self._suits = self._leaving = False
        self.report.write_name(self.number, "")

    def _tell_vacancy(self) -> None:
        """Say that there is no node, if the search has lasted for too long; others get the lanes."""
        assert self._sought_since is not None, "there is a search"
        if time.monotonic() - self._sought_since > PLACE_SECONDS and not self._vacant[0]:
            self.note(f"There is no free node for actor {self.actor}: its lanes are played elsewhere.")
            self._vacant[0] = 1
