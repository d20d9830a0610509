"""Cores for actors and members of a run, with regard to affinity, quota, hyper-threads and other runs on the machine.

A *thread* here is what Linux numbers as a CPU; a *core* is a physical one, of one or more threads, which share its
caches and execution units. An actor alone on a core is faster than one that shares it. A learner that shares its
core with an actor slows the whole run down. So each member of a team gets a core, and actors get one thread of every
other core first, then the second ones. Whole cores are left to the other processes where there are enough.

A thread is claimed by binding an abstract socket with its number: the kernel gives it back when the launcher ends,
however it ends, and nothing is left in the file system.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from shared.machine.control_groups import in_force
from shared.machine.proc_files import FILESYSTEM, number, text

NICENESS = 10
"""Niceness of all processes but learner and inference, for which the others wait."""
RESERVED = 2
"""Whole cores that are left to the other processes; one of two threads where there are not enough."""


class Claims:
    """The threads that this run has claimed, for as long as the object lives."""

    def __init__(self, purpose: str = "core") -> None:
        """`purpose` names a kind of claims; claims of different kinds do not exclude one another."""
        self._purpose = purpose
        self._sockets: list[socket.socket] = []
        self.threads: list[int] = []

    def claim(self, wanted: int, usable: Iterable[int]) -> None:
        """Claim the first `wanted` threads of `usable` that no other run has; all of them or none."""
        for thread in usable:
            if len(self.threads) == wanted:
                return
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0ringside-{self._purpose}-{thread}")
            except OSError:  # another run has it
                claim.close()
                continue
            self._sockets.append(claim)
            self.threads.append(thread)
        if len(self.threads) < wanted:
            self.close()

    def close(self) -> None:
        """Give the threads back."""
        for claim in self._sockets:
            claim.close()
        self._sockets.clear()
        self.threads.clear()


def choose_threads(actors: int, members: int, claims: Claims, root: Path = FILESYSTEM) -> list[frozenset[int]]:
    """A separate thread for each actor, then one of a separate core for each member of the learner's team.

    There is none for members without enough cores, and none at all without enough for actors. With fewer threads than
    actors and `RESERVED` more, the kernel's scheduler does better than fixed places: a process that waits leaves its
    time to the others.
    """
    affinity = os.sched_getaffinity(0)
    if len(affinity) < actors + RESERVED or has_quota(root):
        return []
    cores = physical_cores(affinity, root)
    for placed in (members, 0):  # members get the first: the fastest, except those left to inference
        whole = [thread for core in cores[:placed] for thread in core]
        claims.claim(len(whole), whole)
        if claims.threads == whole:  # else another run has one of them
            claims.claim(len(whole) + actors, threads_for_actors(actors, cores[placed:]))
        if claims.threads:
            return [frozenset({cpu}) for cpu in (*claims.threads[len(whole) :], *(core[0] for core in cores[:placed]))]
    return []


def has_quota(root: Path = FILESYSTEM) -> bool:
    """True if this process may use less than the cores that it sees.

    A quota names no particular cores: other containers use the same ones, and do not see our claims.
    """
    quota = in_force(root).cores
    return quota is not None and quota < len(os.sched_getaffinity(0))


def physical_cores(threads: Iterable[int], root: Path = FILESYSTEM) -> list[list[int]]:
    """Physical cores, each as those of its threads that are among `threads`; in ascending order where all are alike.

    In processors with cores of two kinds the fastest are the last `RESERVED`, and before them fast ones come first.
    """
    cores: dict[int, list[int]] = {}
    for thread in sorted(threads):
        siblings = root / f"sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list"
        found = re.match(r"\d+", text(siblings))  # of a list such as `0,8` or `0-3,8`
        cores.setdefault(int(found[0]) if found else thread, []).append(thread)
    rising = sorted(cores.values(), key=lambda core: _clock(core[0], root))
    others, fastest = rising[:-RESERVED], rising[-RESERVED:]
    return sorted(others, key=lambda core: -_clock(core[0], root)) + fastest


def _clock(thread: int, root: Path) -> int:
    """The highest clock of a thread's core, kHz; 0 where the system does not say, as in most virtual machines."""
    return number(root / f"sys/devices/system/cpu/cpu{thread}/cpufreq/cpuinfo_max_freq") or 0


def threads_for_actors(actors: int, cores: list[list[int]]) -> list[int]:
    """Threads that actors may have, best first: one of each core, then the second ones, never those of the last cores.

    At least `RESERVED` threads are left out: as many whole cores, or one of two threads where the others are needed.
    """
    for reserved in range(RESERVED, 0, -1):
        given, left = cores[:-reserved], cores[-reserved:]
        if sum(map(len, given)) >= actors and sum(map(len, left)) >= RESERVED:
            return [thread for layer in zip_longest(*given) for thread in layer if thread is not None]
    return []
