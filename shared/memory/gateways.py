"""Reports of gateways, whose lanes are played on other nodes (ringside/cluster): node, losses, sentences.

The launcher shows the sentences. A gateway keeps the newest ones; an observer reads them by their numbers, and misses
some if it is late. All of them are in the gateway's log, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.memory.layout import SharedFields, int64, sequence_array, uint8

NAME_BYTES = 64
NOTICES, NOTICE_BYTES = 8, 400
_GATEWAYS = ("gateways",)
_ITSELF = "the gateway"


class Gateways(SharedFields):
    """The fields of a run with gateways, by number of the gateway, from 0."""

    inexact_since = int64(
        "gateway.inexact_since", _GATEWAYS, _ITSELF, "Step since which its node may have acted otherwise; -1: never."
    )
    node = uint8("gateway.node", ("gateways", NAME_BYTES), _ITSELF, "Name of its node, then zeros; empty: it has none.")
    transfer_ns = int64("gateway.transfer_ns", _GATEWAYS, _ITSELF, "Time until its node had parameters.")
    sent_bytes = int64("gateway.sent_bytes", _GATEWAYS, _ITSELF, "Bytes of parameters to its node.")
    received_bytes = int64("gateway.received_bytes", _GATEWAYS, _ITSELF, "Bytes of steps from its node.")
    losses = int64("gateway.losses", _GATEWAYS, _ITSELF, "Nodes that it lost.")
    notice = uint8("gateway.notice", ("gateways", NOTICES, NOTICE_BYTES), _ITSELF, "The newest sentences.")
    notices = sequence_array("gateway.notices", _GATEWAYS, _ITSELF, "Number of sentences so far.")

    def clear(self) -> None:
        """Before any process starts."""
        self.inexact_since[:] = -1

    @property
    def inexact_step(self) -> int:
        """First step since which a node may have acted otherwise than this machine; -1: none did."""
        return int(min((step for step in self.inexact_since if step >= 0), default=-1))

    def name(self, gateway: int) -> str:
        """Name of a gateway's node; empty: it has none."""
        return _read(self.node[gateway])

    def write_name(self, gateway: int, name: str) -> None:
        """Say which node a gateway has."""
        _write(self.node[gateway], name)

    def tell(self, gateway: int, sentence: str) -> None:
        """Add a sentence for the launcher to show."""
        number = self.notices.values.item(gateway)
        _write(self.notice[gateway, number % NOTICES], sentence)
        self.notices.publish(gateway, number + 1)

    def sentences(self, gateway: int, since: int, until: int) -> list[str]:
        """The sentences with numbers from `since` to before `until` that are still there."""
        return [_read(self.notice[gateway, number % NOTICES]) for number in range(max(since, until - NOTICES), until)]


def _write(field: NDArray[np.uint8], text: str) -> None:
    """Write text into a field of bytes, cut where the field ends."""
    data = text.encode()[: len(field)].ljust(len(field), b"\0")
    field[:] = np.frombuffer(data, np.uint8)


def _read(field: NDArray[np.uint8]) -> str:
    """Text of a field; a reader may see one that is just being written."""
    return field.tobytes().rstrip(b"\0").decode(errors="replace")
