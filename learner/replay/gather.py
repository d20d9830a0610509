"""Planes of frames gathered into blocks for a network (learner/networks/frame_blocks.py), in one pass over memory.

Four pixels of a line are one 32-bit word.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shared.frame_shape import BLOCK

BORDER = 4
"""Pixels by which a frame is continued on every side before an augmented part of its size is cut out."""


@njit(error_model="numpy", cache=True, nogil=True)
def gather_planes_to(lines, rows, frame_mask, places, out):  # type: ignore[no-untyped-def]
    """Planes `rows` as blocks; g is the number of blocks along a side of a frame.

    Args:
        lines: uint32[R, 4 * g, g], all planes.
        rows, frame_mask: int64 and uint8 or bool[n, k]; where `frame_mask` is 0 the plane counts as zeros.
        places: int64[n], where in `out` each row goes.
        out: uint32[N, g, g, k, 4].
    """
    grid = lines.shape[2]
    for i in range(rows.shape[0]):
        blocks = out[places[i]]
        for k in range(rows.shape[1]):
            if frame_mask[i, k]:
                frame = lines[rows[i, k]]
                for y in range(grid):
                    for x in range(grid):
                        for line in range(BLOCK):
                            blocks[y, x, k, line] = frame[BLOCK * y + line, x]
            else:
                blocks[:, :, k] = 0


@njit(error_model="numpy", cache=True, nogil=True)
def gather_augmented(planes, rows, frame_mask, augmentation, out):  # type: ignore[no-untyped-def]
    """Planes `rows` of s and s' as blocks, cropped at an offset and times a factor (Yarats et al. 2021, section 3.1).

    A border repeats the pixels of the edge. Products are rounded, and end at 255.

    Args:
        planes: uint8[R, size, size], all planes.
        rows, frame_mask: as for `gather_planes_to`; the second half of the k planes is of s'.
        augmentation: float32[n, 2, 3] (`Chunk.augmentation`).
        out: uint8[n, g, g, k, 4, 4].
    """
    gray, last, (n, k) = np.empty(256, np.uint8), planes.shape[1] - 1, rows.shape
    for i in range(n):
        for j in range(k):
            down, right, factor = augmentation[i, 2 * j // k]
            for pixel in range(256):
                gray[pixel] = min(pixel * factor * frame_mask[i, j] + 0.5, 255.0)
            for y in range(last + 1):
                line = planes[rows[i, j], min(max(y + int(down) - BORDER, 0), last)]
                for x in range(last + 1):
                    pixel = line[min(max(x + int(right) - BORDER, 0), last)]
                    out[i, y // BLOCK, x // BLOCK, j, y % BLOCK, x % BLOCK] = gray[pixel]
