"""A launcher whose second member of the learner has a fault: `[BARRIER=N] python -m tests.exact.odd_member OPTIONS`."""

import os
import signal
import sys
from typing import Any

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec

BARRIER = "BARRIER"
"""Variable with the number of the wait at which the first life of the member ends, with all before it written.

Without it the member sees other parameters than the learner after its first update: their checksums differ.
"""


def main(child_spec: ChildSpec) -> None:
    """The member."""
    from learner.engine.engine import Engine
    from learner.team import member
    from learner.team.shared_team import SharedTeam

    checksum, sync, left = Engine.checksum, SharedTeam.sync, int(os.environ.get(BARRIER, 0))

    def deviate(engine: Engine[Any]) -> int:
        return checksum(engine) + int(engine.round > 0)

    def wait(team: SharedTeam) -> None:
        nonlocal left
        left -= 1
        if not left and not child_spec.incarnation:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(team)

    if left:
        SharedTeam.sync = wait  # type: ignore[method-assign]
    else:
        Engine.checksum = deviate  # type: ignore[method-assign]
    member.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.MEMBER] = "tests.exact.odd_member"
    sys.exit(launch.main(sys.argv[1:]))
