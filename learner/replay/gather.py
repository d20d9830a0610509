"""Frames gathered into blocks for a network, in one pass over memory; learner/networks/fused.py defines the blocks.

Four pixels of a line are one 32-bit word.
"""

from __future__ import annotations

from numba import njit

from shared.config.settings import FRAME_SIDE

BLOCK = 4
"""Pixels along a side of a block."""
GRID = FRAME_SIDE // BLOCK
"""Blocks along a side of a frame."""


@njit(error_model="numpy", cache=True, nogil=True)
def select(lines, rows, frame_mask, out):  # type: ignore[no-untyped-def]
    """Frames `rows` as blocks.

    Args:
        lines: uint32[R, 84, 21], all frames.
        rows, frame_mask: int64 and uint8 or bool[n, k]; where `frame_mask` is 0 the frame counts as zeros.
        out: uint32[n, 21, 21, k, 4].
    """
    for i in range(rows.shape[0]):
        select_one(lines, rows[i], frame_mask[i], out[i])


@njit(error_model="numpy", cache=True, nogil=True)
def select_one(lines, rows, frame_mask, out):  # type: ignore[no-untyped-def]
    """One row of `select`: rows and frame_mask [k], out uint32[21, 21, k, 4]."""
    for k in range(rows.shape[0]):
        if frame_mask[k]:
            frame = lines[rows[k]]
            for y in range(GRID):
                for x in range(GRID):
                    for line in range(BLOCK):
                        out[y, x, k, line] = frame[BLOCK * y + line, x]
        else:
            out[:, :, k] = 0


@njit(error_model="numpy", cache=True, nogil=True)
def select_to(lines, rows, frame_mask, places, out):  # type: ignore[no-untyped-def]
    """Gather like `select`, row i to `out[places[i]]`."""
    for i in range(rows.shape[0]):
        select_one(lines, rows[i], frame_mask[i], out[places[i]])
