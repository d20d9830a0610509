"""A launcher whose second member is killed at a barrier: `BARRIER=N python -m tests.exact.dying OPTIONS`."""

from __future__ import annotations

import os
import signal
import sys

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec

BARRIER = "BARRIER"
"""Variable with the number of the wait at which the first life of the member ends."""


def main(child_spec: ChildSpec) -> None:
    """The member; it is killed as it comes to a wait for the others, with all before it written."""
    from learner.team import member
    from learner.team.shared_team import SharedTeam

    sync, left = SharedTeam.sync, int(os.environ[BARRIER])

    def wait(team: SharedTeam) -> None:
        nonlocal left
        left -= 1
        if not left and not child_spec.incarnation:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(team)

    SharedTeam.sync = wait  # type: ignore[method-assign]
    member.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.MEMBER] = "tests.exact.dying"
    sys.exit(launch.main(sys.argv[1:]))
