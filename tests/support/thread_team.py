"""Members of a learner that are threads of one process: what a team computes, without processes.

One member runs at a time, up to its next wait. So a wait that is missing shows every time: in one order of the members
the first reads what another has not written yet, or writes what another has not read yet.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from learner.team.team import Team

T = TypeVar("T")
SECONDS = 100.0
"""Longest wait of a member for its turn."""


class _Meeting:
    """Things that all members see: shared tensors by the order in which they are asked for, and whose turn it is."""

    def __init__(self, size: int) -> None:
        self.tensors: list[Tensor] = []
        self.shares = [torch.empty(0)] * size
        self._size, self._turn, self._changed = size, 0, threading.Condition()
        self._error: BaseException | None = None

    def wait_for_turn(self, place: int) -> None:
        """Wait until the members before `place` wait or are done."""
        with self._changed:
            ready = self._changed.wait_for(lambda: self._error is not None or self._turn == place, SECONDS)
            if self._error is not None:
                raise self._error
            assert ready, "others wait less often"

    def pass_turn(self, place: int, error: BaseException | None = None) -> None:
        """Let the next member run, or all fail with one that has."""
        with self._changed:
            self._turn, self._error = (place + 1) % self._size, self._error or error
            self._changed.notify_all()


class _Member(Team):
    """A member that shares memory with the others (`learner.team.team.Team`)."""

    def __init__(self, rank: int, size: int, place: int, meeting: _Meeting) -> None:
        self.rank, self.size = rank, size
        self._place, self._meeting, self._asked = place, meeting, 0

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        self._asked += 1
        if len(self._meeting.tensors) < self._asked:
            self._meeting.tensors.append(torch.zeros(*shape, dtype=dtype, device=device))
        found = self._meeting.tensors[self._asked - 1]
        assert (found.shape, found.dtype) == (shape, dtype), "all members ask for the same"
        return found

    def sync(self) -> None:
        self._meeting.pass_turn(self._place)
        self._meeting.wait_for_turn(self._place)

    def exchange(self, *wholes: Tensor) -> None:
        self.sync()


class _Rank(_Member):
    """A rank with its own memory (`learner.team.gpu_ranks.RankGroup`)."""

    zeros, sync = Team.zeros, Team.sync

    def written(self, parts: int) -> range:
        return range(parts)

    def exchange(self, *wholes: Tensor) -> None:
        for whole in wholes:
            self._meeting.shares[self.rank] = whole
            _Member.sync(self)
            found = [share.chunk(self.size)[rank].clone() for rank, share in enumerate(self._meeting.shares)]
            _Member.sync(self)
            for part, other in zip(whole.chunk(self.size), found, strict=True):
                part.copy_(other)


def in_team(size: int, work: Callable[[Team], T], *, ranks: bool = False, reverse: bool = False) -> list[T]:
    """Results of `work` in each of so many members; all fail with one that fails.

    Args:
        ranks: they share no memory, as on GPUs.
        reverse: the last member runs first.
    """
    meeting = _Meeting(size)

    def run(rank: int) -> T:
        place = size - 1 - rank if reverse else rank
        try:
            meeting.wait_for_turn(place)
            found = work((_Rank if ranks else _Member)(rank, size, place, meeting))
        except BaseException as error:
            meeting.pass_turn(place, error)
            raise
        meeting.pass_turn(place)
        return found

    with ThreadPoolExecutor(size, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        return list(threads.map(run, range(size)))
