"""The role of a worker's process that is killed within shards; `tests.support.dying_run` starts runs that have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from shared.process.child import ChildSpec
from workers import versions, worker

DEATHS = {(0, 0): 3, (1, 0): 17, (0, 6): 0, (1, 7): 0}
"""Round from which on the process of that number and incarnation dies in a shard."""
NEVER = 1 << 62


class DyingVersions(versions.Versions):
    """Kills its process after the first block of a shard."""

    deadly_round = NEVER

    def apply(self, round_: int) -> None:
        self._dies = round_ >= self.deadly_round
        super().apply(round_)

    def blocks(self) -> Iterator[slice]:
        for block in super().blocks():
            yield block
            if self._dies:
                os.kill(os.getpid(), signal.SIGKILL)


def main(child_spec: ChildSpec) -> None:
    """The role."""
    DyingVersions.deadly_round = DEATHS.get((child_spec.number, child_spec.incarnation), NEVER)
    versions.BLOCK = 1 << 12
    worker.Versions = DyingVersions  # type: ignore[misc]
    worker.main(child_spec)
