"""A report for several tests of the benchmarks."""

import pytest
from rich.console import Console

from benchmarks.harness import Report


@pytest.fixture
def report() -> Report:
    """A report that prints nothing and describes no machine."""
    return Report("name", "Title.", console=Console(quiet=True), machine={})
