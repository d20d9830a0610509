"""A launcher whose second member sees other parameters than the learner: `python -m tests.exact.deviating OPTIONS`."""

from __future__ import annotations

import sys
from typing import Any

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec


def main(child_spec: ChildSpec) -> None:
    """The member; its checksum of the parameters differs from that of the learner after its first update."""
    from learner.engine.engine import Engine
    from learner.team import member

    checksum = Engine.checksum

    def deviate(engine: Engine[Any]) -> int:
        return checksum(engine) + int(engine.round > 0)

    Engine.checksum = deviate  # type: ignore[method-assign]
    member.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.MEMBER] = "tests.exact.deviating"
    sys.exit(launch.main(sys.argv[1:]))
