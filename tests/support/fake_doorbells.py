"""Doorbells of a run without processes."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock

from shared.memory.wait import Doorbell
from shared.process.child import Doorbells


def fake_doorbells(scribe: Any = None, others: Sequence[Any] = ()) -> Doorbells:
    """Doorbells of the scribe, by default a real one, and of the other processes."""
    made = MagicMock(spec=Doorbells)
    made.__getitem__.return_value = Doorbell.create() if scribe is None else scribe
    made.without.return_value = others
    return made
