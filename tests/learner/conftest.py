"""Tests of the learner compute in one thread, as a learner does."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Sums in one order."""
