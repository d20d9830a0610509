"""The members of a learner on a CPU: processes that share memory, and wait for each other at barriers.

The supervisor gives the members a file in memory without a name. When one of them dies it may leave parameters half
written. So the supervisor restarts all of them together, with a new file, and they go back to the newest snapshot.
"""

from __future__ import annotations

import mmap
import os
from math import prod
from typing import Self

import torch
from torch import Tensor

from learner.team.team import Team
from shared.errors import FatalError
from shared.memory.wait import POLL_SECONDS, Doorbell, Waiter
from shared.process.child import ChildSpec

SPINS = 1_000
"""Looks at the other members before a member sleeps, some 50 ns each: about as long as it takes to wake up."""
SLEEP_SECONDS = 0.001
"""First sleep; each is twice as long as the one before, since the last member to arrive wakes the others."""
_LINE = 8
"""Numbers in a cache line: each member writes into its own."""


class SharedTeam(Team):
    """Members that share memory (`learner.team.team.Team`)."""

    def __init__(self, rank: int, fd: int, waiter: Waiter, doorbells: list[Doorbell]) -> None:
        """Map the beginning of the file `fd`, which is empty or has the same beginning already.

        Args:
            waiter: of this process.
            doorbells: those of all members, by rank.
        """
        self.rank, self.size = rank, len(doorbells)
        self._fd, self._waiter, self._doorbells = fd, waiter, doorbells
        self._end = self._turn = 0
        counters = SharedTeam.zeros(self, 3, self.size, _LINE, dtype=torch.int64).numpy()
        self._arrived, self._sleeps, self._numbers = (memoryview(each.reshape(-1)) for each in counters)

    @classmethod
    def join(cls, child_spec: ChildSpec, waiter: Waiter, device: torch.device) -> Self:
        """The team of the members of a run; its first wait is for them to join."""
        assert child_spec.rendezvous is not None, "a learner with members has one"
        learners = child_spec.plan.processes.learners
        doorbells = [child_spec.doorbells[index] for index in learners]
        return cls(learners.index(child_spec.process), child_spec.rendezvous, waiter, doorbells)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        """Zeros in the next pages of the file, whose memory is reserved. Raises `FatalError` if there is none."""
        count = prod(shape)
        length = max(1, count) * dtype.itemsize
        try:
            os.posix_fallocate(self._fd, self._end, length)
            mapped = mmap.mmap(self._fd, length, offset=self._end)
            mapped.madvise(mmap.MADV_DONTDUMP)
        except OSError as error:
            raise FatalError(
                f"Memory of {length / 1e9:.2f} GB for the members of the learner could not be reserved "
                f"({error.strerror}): pass fewer --learner-members, or free memory."
            ) from error
        self._end += -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        return torch.frombuffer(mapped, dtype=dtype)[:count].view(shape)

    def sync(self) -> None:
        """Wait until all members have called it as often. Raises `Stopped` when the run is to end."""
        if self._arrive():
            return
        for _ in range(SPINS):
            if self._all_here():
                return
        seconds = SLEEP_SECONDS
        while not self._sleep(seconds):
            self._waiter.heartbeat()  # a part of the work: the others compute theirs
            seconds = min(2 * seconds, POLL_SECONDS)

    def meet(self, number: int, what: str) -> None:
        """Wait for all members, also for hours; see `Team`."""
        numbers = self._exchange_numbers(number)
        if len(set(numbers)) > 1:
            raise FatalError(
                f"The members of the learner disagree about {what} ({', '.join(map(str, numbers))}): their processors "
                "do not compute alike. Take one member, or GPUs of one model."
            )

    def lead(self, number: int) -> int:
        """Return the number with which member 0 comes."""
        return self._exchange_numbers(number)[0]

    def _exchange_numbers(self, number: int) -> list[int]:
        self._numbers[self.rank * _LINE] = number
        if not self._arrive():
            self._waiter.wait(self._all_here, self._sleep)
        numbers = [self._numbers[each] for each in range(0, self.size * _LINE, _LINE)]
        SharedTeam.sync(self)  # before one of them comes with the next number
        return numbers

    def _arrive(self) -> bool:
        """Count this member's arrival, and wake those that sleep if it is the last; True if it is."""
        self._turn += 1
        self._arrived[self.rank * _LINE] = self._turn
        last = self._all_here()
        if last:
            for rank, doorbell in enumerate(self._doorbells):
                if self._sleeps[rank * _LINE]:
                    doorbell.ring()
        return last

    def _all_here(self) -> bool:
        turn, arrived = self._turn, self._arrived
        return all(arrived[each] >= turn for each in range(0, self.size * _LINE, _LINE))

    def _sleep(self, seconds: float) -> bool:
        """Sleep until the last member arrives, at most so long; True if all have."""
        self._sleeps[self.rank * _LINE] = 1
        if not self._all_here():
            self._waiter.doorbell.wait(seconds)
        self._sleeps[self.rank * _LINE] = 0
        return self._all_here()
