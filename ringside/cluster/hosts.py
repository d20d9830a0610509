"""Objects of ours on other machines, as the launcher sees them.

`ray_hosts` makes them of Ray actors; tests make them of plain objects in the same process, with faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class NodeLost(Exception):
    """A node, or our process on it, died or is silent. The message ends a sentence: "node 10.0.0.7 died"."""


class Host(Protocol):
    """A `NodeObject` that answers calls one after another."""

    def ready(self, seconds: float) -> bool:
        """Wait at most `seconds`; True if the object has been placed on a node. Raises `NodeLost`."""

    def call(self, method: str, *arguments: Any, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Call a method of the object and return its answer.

        Args:
            seconds: after which a missing answer counts as the loss of the node.
            meanwhile: called several times a second while the answer is awaited.

        Raises:
            NodeLost: there is no answer. Any error that the method itself raises.
        """

    def is_leaving(self) -> bool:
        """True if the node of an object that is placed was told to leave the cluster. Raises `NodeLost`."""

    def release(self, *, gently: bool = False) -> None:
        """End the process of the object, if it lives; give its place on the node back.

        Args:
            gently: call its method `close` first, and wait for it a moment.
        """


class Hosts(Protocol):
    """A cluster that places objects on its nodes."""

    def place(self, kind: type, *arguments: Any) -> Host:
        """Ask for a new object `kind(*arguments)` on a node with enough free resources; does not wait."""

    def leave_out(self, host: Host) -> None:
        """Place nothing more on the node of an object that is there. Raises `NodeLost`."""
