"""Cores for the processes of a run, so that several runs on one machine do not fight for the same ones.

A core is claimed by binding an abstract socket with its number: the kernel gives it back when the launcher ends,
however it ends, and nothing is left in the file system.
"""

from __future__ import annotations

import os
import socket

RESERVED = 2
"""Cores that are left to everything that is not an actor, at least."""


class Claims:
    """The cores that this run has claimed, for as long as the object lives."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.cores: list[int] = []

    def claim(self, wanted: int, usable: set[int]) -> None:
        """Claim up to `wanted` cores of `usable` that no other run has."""
        for core in sorted(usable):
            if len(self.cores) == wanted:
                return
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0ringside-core-{core}")
            except OSError:  # another run has it
                claim.close()
                continue
            self._sockets.append(claim)
            self.cores.append(core)

    def close(self) -> None:
        """Give the cores back."""
        for claim in self._sockets:
            claim.close()


def cores_of_actors(actors: int, claims: Claims) -> list[frozenset[int] | None]:
    """One core of its own for each actor, or None for all when there are too few for that.

    With fewer cores than actors and `RESERVED` more, the kernel's scheduler does better than any fixed place.
    """
    usable = os.sched_getaffinity(0)
    if len(usable) < actors + RESERVED:
        return [None] * actors
    claims.claim(actors, usable)
    if len(claims.cores) < actors:
        return [None] * actors
    return [frozenset({core}) for core in claims.cores]
