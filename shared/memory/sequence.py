"""Counters that publish data: the data are written first, then the counter says that they are there.

A sequence has one writer. A reader that sees a value may read the data that it publishes; one that sees an older value
waits and reads again. The counter is an aligned 64-bit integer, so no read is torn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Sequence:
    """One counter.

    Example, with data that fit into a ring of `n` slots:

        slots[number % n] = data        # the writer
        done.publish(number + 1)

        if done.read() > number:        # a reader
            use(slots[number % n])
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: NDArray[np.int64]) -> None:
        """`cell` int64[1] lies in shared memory."""
        self._cell = memoryview(cell)  # type: ignore[arg-type]  # several times as fast as a numpy array

    def publish(self, value: int) -> None:
        """Say that the data up to `value` are there.

        x86-64 makes stores visible in the order of the program, so no fence is needed. On another processor a release
        fence belongs here, and an acquire fence into `read`.
        """
        self._cell[0] = value

    def read(self) -> int:
        """Return the newest value that can be seen. Read it before the data."""
        return self._cell[0]


class SequenceArray:
    """Counters of one meaning, each with a writer: those of all lanes, or of all buffers.

    Attributes:
        values: int64[...], read-only: all counters as they are at the moment of the read.
    """

    def __init__(self, cells: NDArray[np.int64]) -> None:
        """`cells` int64[...] lies in shared memory."""
        self._cells = cells
        self.values = cells.view()
        self.values.flags.writeable = False

    def at(self, *index: int) -> Sequence:
        """Return the counter at an index."""
        return Sequence(self._cells[index[:-1]][index[-1] : index[-1] + 1])

    def publish(self, index: int | slice | NDArray[np.int64], value: int | NDArray[np.int64]) -> None:
        """Set some counters, after the data of all of them are written."""
        self._cells[index] = value

    def publish_all(self, values: ArrayLike) -> None:
        """Set every counter, for a process that prepares the memory before others work."""
        self._cells[...] = values
