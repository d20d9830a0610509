"""Means of metrics over the updates of a round, accumulated on the device without waiting for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shared.errors import FatalError


class RoundMetrics(NamedTuple):
    """Means over the updates of a round."""

    updates: int
    means: dict[str, float]
    """Mean by metric, in the order of the method's declaration."""


class RoundMeans:
    """Sums of metrics by name, in float64.

    A metric with a value for each sample of a minibatch is added by place in the minibatch, so that an addition is one
    kernel. A scalar is added in the first place: it comes once in a chunk of updates.
    """

    def __init__(self, names: Sequence[str], batch: int, device: torch.device) -> None:
        self.names = tuple(names)
        self._batch = batch
        self._sums = torch.zeros(len(names), batch, dtype=torch.float64, device=device)
        self._scalars: set[str] = set()

    def clear(self) -> None:
        """Begin a round."""
        self._sums.zero_()

    def add(self, metrics: Mapping[str, Tensor], scale: float = 1.0) -> None:
        """Add `scale` times the values of one update, each float32[batch] or a scalar.

        Raises:
            FatalError: one of the metrics has none of the names.
        """
        for name, values in metrics.items():
            if name not in self.names:
                raise FatalError(
                    f"The method gives the metric {name!r}, and its declaration names {', '.join(self.names)}: add it "
                    "to the declaration."
                )
            row = self._sums[self.names.index(name)]
            if not values.dim():
                self._scalars.add(name)
            (row if values.dim() else row[0]).add_(values, alpha=scale)

    def totals(self) -> Tensor:
        """float64[metrics]: the sums; a value that was not finite keeps its sum so."""
        return self._sums.sum(1)

    def means(self, updates: int, chunks: int) -> RoundMetrics:
        """The means after `updates` updates in `chunks` chunks."""
        totals = dict(zip(self.names, self.totals().tolist(), strict=True))
        counts = {name: chunks if name in self._scalars else updates * self._batch for name in self.names}
        return RoundMetrics(updates, {name: total / max(1, counts[name]) for name, total in totals.items()})
