"""Fixtures for the tests of observers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.watched import Pretended


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Pretended]:
    """A run that plays as the test says, for observers to attach to."""
    pretended = Pretended(tmp_path / "pong")
    yield pretended
    pretended.end()
