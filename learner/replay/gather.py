"""Planes of frames gathered into blocks for a network (learner/networks/frame_blocks.py), in one pass over memory.

Four pixels of a line are one 32-bit word.
"""

from __future__ import annotations

from numba import njit

from shared.frame_shape import BLOCK


@njit(error_model="numpy", cache=True, nogil=True)
def gather_planes(lines, rows, frame_mask, out):  # type: ignore[no-untyped-def]
    """Planes `rows` as blocks; g is the number of blocks along a side of a frame.

    Args:
        lines: uint32[R, 4 * g, g], all planes.
        rows, frame_mask: int64 and uint8 or bool[n, k]; where `frame_mask` is 0 the plane counts as zeros.
        out: uint32[n, g, g, k, 4].
    """
    for i in range(rows.shape[0]):
        gather_row(lines, rows[i], frame_mask[i], out[i])


@njit(error_model="numpy", cache=True, nogil=True)
def gather_row(lines, rows, frame_mask, out):  # type: ignore[no-untyped-def]
    """One row of `gather_planes`: rows and frame_mask [k], out uint32[g, g, k, 4]."""
    grid = lines.shape[2]
    for k in range(rows.shape[0]):
        if frame_mask[k]:
            frame = lines[rows[k]]
            for y in range(grid):
                for x in range(grid):
                    for line in range(BLOCK):
                        out[y, x, k, line] = frame[BLOCK * y + line, x]
        else:
            out[:, :, k] = 0


@njit(error_model="numpy", cache=True, nogil=True)
def gather_planes_to(lines, rows, frame_mask, places, out):  # type: ignore[no-untyped-def]
    """Gather like `gather_planes`, row i to `out[places[i]]`."""
    for i in range(rows.shape[0]):
        gather_row(lines, rows[i], frame_mask[i], out[places[i]])
