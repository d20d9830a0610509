"""Published parameters: two buffers, and the number that says which is the newest.

Publication `p` lies in buffer `p % 2`; its data are written before `current` says `p`. A reader of `p` is safe until
`p + 1` is published, after which `p + 2` may overwrite it; with rounds nobody reads `p` then, and `read` checks all the
same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.memory.arena import Arena
from shared.memory.layout import Field


def weights_fields(parameters: int) -> list[Field]:
    """The layout's part for `parameters` float32 values a version."""
    return [
        Field("weights.data", "f4", (2, parameters), "learner"),
        Field("weights.current", "i8", (1,), "learner"),
        Field("weights.content", "i8", (1,), "learner"),
    ]


class PublishedWeights:
    """The published parameters."""

    def __init__(self, arena: Arena) -> None:
        self.data = arena["weights.data"]
        self._current = arena["weights.current"]
        self._content = arena["weights.content"]

    def clear(self) -> None:
        """Before any process starts: nothing is published."""
        self._current[0] = self._content[0] = -1

    @property
    def current(self) -> int:
        """Number of the newest publication; -1: none yet."""
        return int(self._current[0])

    def publish(self, content: int, fill: Callable[[NDArray[np.float32]], None]) -> None:
        """Publish parameters. `content` (updates done) says whether they changed at all.

        `fill` writes the parameters into float32[parameters]; it is not called when nothing changed.
        """
        if self._content[0] != content or self.current < 0:
            following = self.current + 1
            fill(self.data[following % 2])
            self._current[0] = following
            self._content[0] = content  # last: killed before it, the next life publishes the same once more

    def read(self, load: Callable[[NDArray[np.float32]], None]) -> int:
        """Hand the newest parameters to `load`; return their publication number."""
        while True:
            number = self.current
            load(self.data[number % 2])
            if self.current == number:
                return number
