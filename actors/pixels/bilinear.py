"""Frames of dqn_zoo (`processors.py`): the maximum of colors, the luma, and Pillow's bilinear filter.

The maximum is taken of each color channel of a step's last two screens; the luma is rounded down. The filter equals
`PIL.Image.resize((size, size), BILINEAR)` bit for bit: first across, then down, with weights in fixed point and sums
rounded to bytes after each of the two. (Pillow 13 shrinks screens of more than 236 lines in the other order.)
"""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np
from numba import njit
from numpy.typing import NDArray

from actors.pixels.frames import Bytes, make_shrinker, shrink_area
from shared.frame_shape import FRAME_SIDE, SCREEN_WIDTH

LUMA = (0.299, 0.587, 1 - (0.299 + 0.587))
"""Weights of red, green and blue."""
_PRECISION = 22
"""Bits behind the point of a weight, as in Pillow (`Resample.c`, PRECISION_BITS)."""


def luma_of_pairs(colors: Bytes) -> Bytes:
    """Luma of the channel-wise maximum of every pair of colors: uint8[256, 256] from uint8[256, 3]."""
    pooled = np.maximum(colors[:, None], colors[None, :])
    return np.tensordot(pooled, LUMA, (-1, 0)).astype(np.uint8)


@cache
def bilinear_weights(source: int, target: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """First source pixel int32[target] and weights int32[target, n] in fixed point of every target pixel.

    A triangle as wide as two target pixels, cut off at the edges of the source; weights behind the last pixel are 0.
    """
    scale = source / target
    width = max(scale, 1.0)
    taps = ceil(width) * 2 + 1
    first, weights = np.zeros(target, np.int32), np.zeros((target, taps), np.int32)
    for pixel in range(target):
        center = (pixel + 0.5) * scale
        low = max(0, int(center - width + 0.5))
        high = min(source, int(center + width + 0.5))
        triangle = [max(0.0, 1.0 - abs((x - center + 0.5) * (1.0 / width))) for x in range(low, high)]
        total = sum(triangle)
        first[pixel] = low
        weights[pixel, : high - low] = [int(0.5 + weight / total * (1 << _PRECISION)) for weight in triangle]
    return first, weights


@njit(cache=True, nogil=True)
def _shrink(gray, columns, across, rows, down, out):  # type: ignore[no-untyped-def]
    """Shrink uint8[height, width] to `out` uint8[lines, size]."""
    height, width = gray.shape
    lines_out, size = out.shape
    half = np.int32(1 << 21)
    lines = np.empty((height, size), np.uint8)
    for y in range(height):
        for x in range(size):
            total = half
            for k in range(across.shape[1]):
                total += np.int32(gray[y, min(columns[x] + k, width - 1)]) * across[x, k]
            lines[y, x] = np.uint8(total >> 22)
    for y in range(lines_out):
        for x in range(size):
            total = half
            for k in range(down.shape[1]):
                total += np.int32(lines[min(rows[y] + k, height - 1), x]) * down[y, k]
            out[y, x] = np.uint8(total >> 22)


def shrink_bilinear(gray: Bytes, out: Bytes) -> None:
    """Write a gray image uint8[height, width] into `out` uint8[size, size]."""
    height, width = gray.shape
    _shrink(gray, *bilinear_weights(width, out.shape[1]), *bilinear_weights(height, out.shape[0]), out)


def compile_kernels() -> None:
    """Compile every kernel that actors run once, so that they only load it."""
    out = np.empty((FRAME_SIDE, FRAME_SIDE), np.uint8)
    make_shrinker(np.zeros((4, 210, SCREEN_WIDTH), np.uint8), np.zeros(65_536, np.uint16))(out)
    for shrink in (shrink_bilinear, shrink_area):
        shrink(np.zeros((210, SCREEN_WIDTH), np.uint8), out)
