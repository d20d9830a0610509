"""The processes of a learner, its *members*: base of their kinds, and the learner of one process.

All members run the same program on the same data: each computes some *parts* of an update. Sums run over parts in
their order. So the number of parts decides the last bits of the weights, and the number of members decides nothing.
"""

from __future__ import annotations

from itertools import pairwise, starmap

import torch
from torch import Tensor


class Team:
    """The members of a learner, as one of them sees them; here one that is alone, and waits for no other.

    All members call its methods in the same order.

    Attributes:
        rank: number of this member; 0 is the learner, which commits.
        size: number of members.
    """

    rank, size = 0, 1

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        """Zeros, in memory that all members see if they share any."""
        return torch.zeros(*shape, dtype=dtype, device=device)

    def own(self, parts: int) -> range:
        """Neighboring parts that this member computes; members differ by one part at most."""
        return range(self.rank * parts // self.size, (self.rank + 1) * parts // self.size)

    def written(self, parts: int) -> range:
        """Parts that this member writes where all read them: its own, or all parts where no memory is shared."""
        return self.own(parts)

    def exchange(self, *wholes: Tensor) -> None:
        """Wait until each member has written its share of the first dimension of `wholes`, and see all."""
        self.sync()

    def sync(self) -> None:
        """Wait for all members before shared memory is read; where none is shared, do nothing."""

    def meet(self, number: int, what: str) -> None:
        """Wait for all members, which must come with the same number; else `FatalError`."""

    def lead(self, number: int) -> int:
        """Return the number with which member 0 comes."""
        return number

    def leave(self) -> None:
        """Break off everything that waits for other members."""


ALONE = Team()
"""The learner of one process."""


def slices(count: int, parts: int) -> list[slice]:
    """`parts` slices of range(count), the first ones longer by one if need be; some are empty if there are too few."""
    ends = [part * (count // parts) + min(part, count % parts) for part in range(parts + 1)]
    return list(starmap(slice, pairwise(ends)))
