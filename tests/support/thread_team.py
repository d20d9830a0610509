"""Members of a learner that are threads of one process: what a team computes, without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from learner.team.team import Alone, Team

T = TypeVar("T")
SECONDS = 60.0
"""Longest wait of a member for the others."""


class _Meeting:
    """What all members see: shared tensors by the order in which they are asked for, and a barrier."""

    def __init__(self, size: int) -> None:
        self.tensors: list[Tensor] = []
        self.barrier = threading.Barrier(size)
        self.lock = threading.Lock()


class _Member(Alone):
    """A member that shares memory with the others (`learner.team.team.Team`)."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size = rank, size
        self._meeting, self._asked = meeting, 0

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        self._asked += 1
        with self._meeting.lock:
            if len(self._meeting.tensors) < self._asked:
                self._meeting.tensors.append(torch.zeros(*shape, dtype=dtype, device=device))
            found = self._meeting.tensors[self._asked - 1]
        assert (found.shape, found.dtype) == (shape, dtype), "all members ask for the same"
        return found

    def own(self, parts: int) -> range:
        return range(self.rank * parts // self.size, (self.rank + 1) * parts // self.size)

    written = own

    def sync(self) -> None:
        self._meeting.barrier.wait(SECONDS)

    def exchange(self, whole: Tensor) -> None:
        self.sync()


class _Rank(_Member):
    """A rank with its own memory (`learner.team.gpu_ranks.RankGroup`)."""

    zeros, written = Alone.zeros, Alone.written

    def sync(self) -> None:
        """Do nothing."""

    def exchange(self, whole: Tensor) -> None:
        if self.rank == 0:
            self._meeting.tensors = [whole] * self.size
        self._meeting.barrier.wait(SECONDS)
        self._meeting.tensors[self.rank] = whole
        self._meeting.barrier.wait(SECONDS)
        found = [tensor.chunk(self.size)[rank].clone() for rank, tensor in enumerate(self._meeting.tensors)]
        self._meeting.barrier.wait(SECONDS)
        for part, other in zip(whole.chunk(self.size), found, strict=True):
            part.copy_(other)


def in_team(size: int, work: Callable[[Team], T], *, ranks: bool = False) -> list[T]:
    """Results of `work` in each of so many members; a member that fails ends the waits of the others.

    Args:
        ranks: they share no memory, as on GPUs.
    """
    meeting = _Meeting(size)

    def run(rank: int) -> T:
        try:
            return work((_Rank if ranks else _Member)(rank, size, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        return list(threads.map(run, range(size)))
