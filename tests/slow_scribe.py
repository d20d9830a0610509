"""A launcher whose scribe computes for a while over each span: `python -m tests.slow_scribe`, words of launch.py."""

from __future__ import annotations

import sys

import launch
import supervisor
from shared.board import Role
from shared.process import Birth
from tests.slowed import compute
from watch import scribe

SPAN_SECONDS = 0.1
"""CPU time."""


class SlowScribe(scribe.Scribe):
    """Takes its time."""

    def _span(self, first: int) -> None:
        compute(SPAN_SECONDS)
        super()._span(first)


def main(birth: Birth) -> None:
    """The role."""
    scribe.Scribe = SlowScribe  # type: ignore[misc]
    scribe.main(birth)


if __name__ == "__main__":
    supervisor.MODULES[Role.SCRIBE] = "tests.slow_scribe"
    sys.exit(launch.main(sys.argv[1:]))
