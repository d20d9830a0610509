"""A launcher whose scribe computes for a while over each span: `python -m tests.support.slow_scribe OPTIONS`."""

from __future__ import annotations

import sys

import launch
from ringside.scribe import scribe
from ringside.supervisor import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec
from tests.support.slowed import compute

SPAN_SECONDS = 0.1
"""CPU time."""


class SlowScribe(scribe.Scribe):
    """Takes its time."""

    def _span(self, first: int) -> None:
        compute(SPAN_SECONDS)
        super()._span(first)


def main(child_spec: ChildSpec) -> None:
    """The role."""
    scribe.Scribe = SlowScribe  # type: ignore[misc]
    scribe.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.SCRIBE] = "tests.support.slow_scribe"
    sys.exit(launch.main(sys.argv[1:]))
