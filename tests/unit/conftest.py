"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.watched import Pretended


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums of PyTorch in one order, whatever other tests set."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Pretended]:
    """A run that plays as it is told, to be looked on."""
    pretended = Pretended(tmp_path / "pong")
    yield pretended
    pretended.end()
