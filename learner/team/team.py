"""Interface between the processes of a learner, its *members*, and the learner of one process.

All members run the same program on the same data: each computes some *parts* of an update. Sums run over parts in
their order. So the number of parts decides the last bits of the weights, and the number of members decides nothing.
"""

from __future__ import annotations

from itertools import pairwise, starmap
from typing import Protocol

import torch
from torch import Tensor


class Team(Protocol):
    """The members of a learner, as one of them sees them. All members call its methods in the same order.

    Attributes:
        rank: number of this member; 0 is the learner, which commits.
        size: number of members.
    """

    rank: int
    size: int

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        """Zeros, in memory that all members see if they share any."""

    def own(self, parts: int) -> range:
        """Parts that this member computes."""

    def written(self, parts: int) -> range:
        """Parts that this member writes where all read them: its own, or all parts where no memory is shared."""

    def exchange(self, whole: Tensor) -> None:
        """Wait until each member has written its share of the first dimension of `whole`, and see all shares."""

    def sync(self) -> None:
        """Wait for all members before shared memory is read; where none is shared, do nothing."""

    def meet(self, number: int, what: str) -> None:
        """Wait for all members, which must come with the same number; else `FatalError`."""

    def lead(self, number: int) -> int:
        """Return the number with which member 0 comes."""

    def leave(self) -> None:
        """Break off everything that waits for other members."""


class Alone(Team):
    """A learner of one process."""

    rank, size = 0, 1

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        """Zeros."""
        return torch.zeros(*shape, dtype=dtype, device=device)

    def own(self, parts: int) -> range:
        """All parts."""
        return range(parts)

    def written(self, parts: int) -> range:
        """All parts."""
        return range(parts)

    def exchange(self, whole: Tensor) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def meet(self, number: int, what: str) -> None:
        """Do nothing."""

    def lead(self, number: int) -> int:
        """Return `number`."""
        return number

    def leave(self) -> None:
        """Do nothing."""


def slices(count: int, parts: int) -> list[slice]:
    """`parts` slices of range(count), the first ones longer by one if need be; some are empty if there are too few."""
    ends = [part * (count // parts) + min(part, count % parts) for part in range(parts + 1)]
    return list(starmap(slice, pairwise(ends)))
