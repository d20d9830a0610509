"""Reports of gateways, whose lanes are played on other nodes (ringside/cluster): node, losses, sentences.

The launcher shows the sentences. A gateway keeps the newest ones; an observer reads them by their numbers, and misses
some if it is late. All of them are in the gateway's log, too.
"""

from __future__ import annotations

from shared.memory.layout import SharedFields, int64, sequence_array, texts

NAME_BYTES = 64
NOTICES, NOTICE_BYTES = 8, 400
_GATEWAYS = ("gateways",)
_ITSELF = "the gateway"


class Gateways(SharedFields):
    """The fields of a run with gateways, by number of the gateway, from 0."""

    inexact_since = int64(
        "gateway.inexact_since", _GATEWAYS, _ITSELF, "Step since which its node may have acted otherwise; -1: never."
    )
    node = texts("gateway.node", _GATEWAYS, NAME_BYTES, _ITSELF, "Name of its node; empty: it has none.")
    transfer_ns = int64("gateway.transfer_ns", _GATEWAYS, _ITSELF, "Time until its node had parameters.")
    sent_bytes = int64("gateway.sent_bytes", _GATEWAYS, _ITSELF, "Bytes of parameters to its node.")
    received_bytes = int64("gateway.received_bytes", _GATEWAYS, _ITSELF, "Bytes of steps from its node.")
    losses = int64("gateway.losses", _GATEWAYS, _ITSELF, "Nodes that it lost.")
    notice = texts("gateway.notice", ("gateways", NOTICES), NOTICE_BYTES, _ITSELF, "The newest sentences.")
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
        return str(self.node[gateway].decode(errors="replace"))

    def write_name(self, gateway: int, name: str) -> None:
        """Say which node a gateway has."""
        self.node[gateway] = name.encode()

    def tell(self, gateway: int, sentence: str) -> None:
        """Add a sentence for the launcher to show."""
        number = self.notices.values.item(gateway)
        self.notice[gateway, number % NOTICES] = sentence.encode()
        self.notices.publish(gateway, number + 1)

    def sentences(self, gateway: int, since: int, until: int) -> list[str]:
        """The sentences with numbers from `since` to before `until` that are still there."""
        numbers = range(max(since, until - NOTICES), until)
        return [self.notice[gateway, number % NOTICES].decode(errors="replace") for number in numbers]
