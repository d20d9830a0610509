"""A cluster whose nodes are objects of this process, with faults: the rules of placed work, without Ray."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from ringside.cluster.node_object import NodeLost

Fault = Callable[[str, int], str | None]
"""From a method's name and its call's number on this host to the words of a loss, or None."""


class ObjectHost:
    """One object that is called directly."""

    def __init__(self, made: Callable[[], Any], fault: Fault, has_room: Callable[[], bool] = lambda: True) -> None:
        self._made, self._fault, self._has_room = made, fault, has_room
        self._calls: dict[str, int] = {}
        self.object: Any = None
        self.released = self.lost = self.admitted = False

    def ready(self, seconds: float) -> bool:
        """Make the object, if there is room."""
        if self.object is None and not self._has_room():
            time.sleep(seconds)
            return False
        self.object = self.object or self._made()
        return True

    def call(self, method: str, *arguments: Any, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Call the object, unless a fault is due."""
        assert not self.released
        self._calls[method] = self._calls.get(method, 0) + 1
        if words := "died" if self.lost else self._fault(method, self._calls[method]):
            raise NodeLost(words)
        meanwhile()
        return self.object.answer(method, *arguments)

    def release(self, *, gently: bool = False) -> None:
        """End the object, as the death of its process does."""
        self.released = True
        if self.object is not None:
            self.object.close()


class ObjectCluster:
    """Places objects.

    Attributes:
        hosts: all that were placed.
        left_out: those among them on whose nodes nothing more may be placed.
        room: most objects at a time.
        most_at_once: greatest number of objects at one time.
    """

    def __init__(self, make: Callable[..., Any], *faults: Fault, room: int = 1_000) -> None:
        """`make` replaces the kind that is asked for; each host has the next of `faults`, and after them none.

        Args:
            make: makes an object.
            faults: of the hosts.
            room: most objects at a time.
        """
        self._make, self._faults, self.room = make, list(faults), room
        self.hosts: list[ObjectHost] = []
        self.left_out: list[ObjectHost] = []
        self.most_at_once = 0
        self._lock = Lock()

    def place(self, kind: type, *arguments: Any) -> ObjectHost:
        """Ask for an object."""
        fault = self._faults.pop(0) if self._faults else no_fault
        host = ObjectHost(lambda: self._make(*arguments), fault, lambda: self._admit(host))
        self.hosts.append(host)
        return host

    def leave_out(self, host: ObjectHost) -> None:
        """Record it: every object is on a node of its own."""
        assert not host.released
        self.left_out.append(host)

    def _admit(self, host: ObjectHost) -> bool:
        """True if there is room for another object."""
        with self._lock:
            placed = sum(each.admitted and not each.released for each in self.hosts)
            host.admitted = placed < self.room
            self.most_at_once = max(self.most_at_once, placed + host.admitted)
            return host.admitted


def no_fault(method: str, call: int) -> str | None:
    """No call fails."""
    return None
