"""A launcher whose workers are killed within shards: `python -m tests.support.dying_worker OPTIONS`.

It loads no torch before its role begins, so neither do the children that import it as their main module.
"""

import os
import signal
import sys
from collections.abc import Iterator

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec

DEATHS = {(0, 0): 3, (1, 0): 17, (0, 6): 0, (1, 7): 0}
"""Round from which on the process of that number and incarnation dies in a shard."""


def main(child_spec: ChildSpec) -> None:
    """The role."""
    from workers import versions, worker

    deadly_round = DEATHS.get((child_spec.number, child_spec.incarnation), float("inf"))

    class DyingVersions(versions.Versions):
        """Kills its process after the first block of a shard."""

        def apply(self, round_: int) -> None:
            self._dies = round_ >= deadly_round
            super().apply(round_)

        def blocks(self) -> Iterator[slice]:
            for block in super().blocks():
                yield block
                if self._dies:
                    os.kill(os.getpid(), signal.SIGKILL)

    versions.BLOCK = 1 << 12
    worker.Versions = DyingVersions  # type: ignore[misc]
    worker.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.WORKER] = "tests.support.dying_worker"
    sys.exit(launch.main(sys.argv[1:]))
