"""A launcher whose scribe computes for a while over each record: `python -m tests.support.slow_scribe OPTIONS`."""

import sys

import launch
from ringside.records import scribe
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec
from tests.support.slowed import compute

RECORD_SECONDS = 0.1
"""CPU time."""


class SlowScribe(scribe.Scribe):
    """Takes its time."""

    def _record_rounds(self) -> None:
        compute(RECORD_SECONDS)
        super()._record_rounds()


def main(child_spec: ChildSpec) -> None:
    """The role."""
    scribe.Scribe = SlowScribe  # type: ignore[misc]
    scribe.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.SCRIBE] = "tests.support.slow_scribe"
    sys.exit(launch.main(sys.argv[1:]))
