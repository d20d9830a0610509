"""Ranks that are threads of one process: what the ranks of a learner compute, without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

from learner.networks.sharded import Ranks

T = TypeVar("T")
SECONDS = 60.0
"""Longest wait of a rank for the others."""


class _Rank:
    """One of the ranks (`learner.networks.sharded.Ranks`)."""

    def __init__(self, rank: int, size: int, sent: list[Tensor], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._sent, self._barrier = sent, barrier

    def gather(self, own: Tensor, out: Tensor) -> None:
        self._sent[self.rank] = own
        self._barrier.wait(SECONDS)
        for part, sent in zip(out.chunk(self.size), self._sent, strict=True):
            part.copy_(sent)
        self._barrier.wait(SECONDS)


def in_ranks(size: int, work: Callable[[Ranks | None], T]) -> list[T]:
    """Results of `work` in each of so many ranks; a rank that fails ends the waits of the others."""
    if size == 1:
        return [work(None)]
    sent, barrier = [Tensor()] * size, threading.Barrier(size)

    def run(rank: int) -> T:
        try:
            return work(_Rank(rank, size, sent, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
