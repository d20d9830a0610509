"""Published parameters: two buffers, and the number of the newest publication.

They lie in the packed layout of `shared.network_parameters`. Evaluations, checkpoints and files of weights have the
canonical order.

Publication `p` lies in buffer `p % 2`; its data are written before `current` says `p`. A reader of `p` is safe until
`p + 1` is published, after which `p + 2` may overwrite it. With rounds no process reads `p` then; `read` checks it
anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.memory.layout import ONE, SharedFields, float32, int64, sequence


class PublishedWeights(SharedFields):
    """The published parameters."""

    data = float32("weights.data", (2, "parameters"), "learner", "Two buffers of parameters.")
    publications = sequence("weights.current", "learner", "Number of the newest publication; -1: none yet.")
    content = int64("weights.content", ONE, "learner", "Updates of the newest publication.")

    def clear(self) -> None:
        """Before any process starts: nothing is published."""
        self.publications.publish(-1)
        self.content[0] = -1

    @property
    def current(self) -> int:
        """Number of the newest publication; -1: none yet."""
        return self.publications.read()

    def publish(self, content: int, fill: Callable[[NDArray[np.float32]], None]) -> None:
        """Publish parameters. Nothing is published if `content`, the updates done, has not changed.

        `fill` writes the parameters into float32[parameters]; it is not called when nothing changed.
        """
        if self.content[0] != content or self.current < 0:
            following = self.current + 1
            fill(self.data[following % 2])
            self.publications.publish(following)
            self.content[0] = content  # last: killed before it, the next incarnation publishes the same once more

    def read(self, load: Callable[[NDArray[np.float32]], None]) -> int:
        """Hand the newest parameters to `load`; return their publication number."""
        while True:
            number = self.current
            load(self.data[number % 2])
            if self.current == number:
                return number
