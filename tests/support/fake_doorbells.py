"""Doorbells of a run without processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from shared.memory.wait import Doorbell
from shared.process.child import Doorbells


class _Fake:
    def __init__(self, scribe: Any, others: Sequence[Any]) -> None:
        self._scribe, self._others = scribe, others

    def __getitem__(self, process: int) -> Any:
        return self._scribe

    def without(self, *processes: int) -> Sequence[Any]:
        """Doorbells of the others."""
        return self._others


def fake_doorbells(scribe: Any = None, others: Sequence[Any] = ()) -> Doorbells:
    """Doorbells of the scribe, by default a real one, and of the other processes."""
    return cast(Doorbells, _Fake(Doorbell.create() if scribe is None else scribe, others))
