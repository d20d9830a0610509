"""One object for all nodes: the gateways of a run put each version of the parameters into Ray's store once.

The first gateway that asks for a version puts and offers it; the others wait for the offer. Nodes fetch that one
object, the later ones also from nodes that have it. The exchange holds references alone, never data. It is an actor of
Ray on the machine of the gateways (ray_hosts).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


class _Offer:
    """Data of one name, which are offered or will be."""

    def __init__(self, name: int | None) -> None:
        self.name = name
        self.made = asyncio.Event()
        self.references: list[Any] = []


class Exchange:
    """Keeps the newest offer. All calls come from the event loop of one thread."""

    def __init__(self) -> None:
        self._newest = _Offer(None)

    async def take(self, name: int, seconds: float) -> list[Any]:
        """The reference to the data of that name, in a list; empty: the caller is to put and offer them.

        Args:
            name: number of a version; a new one replaces the former.
            seconds: longest wait for the offer of another caller, which may have died.
        """
        if name != self._newest.name:
            self._newest = _Offer(name)
            return []
        offer = self._newest
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await offer.made.wait()
        return offer.references

    async def offer(self, name: int, references: list[Any]) -> None:
        """Give the reference to those who wait for this name; without effect once another name was asked for."""
        if name == self._newest.name:
            self._newest.references = references
            self._newest.made.set()
