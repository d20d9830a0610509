"""From the emulator's screens to the 84x84 frame in its ring slot, in one pass.

The result equals, bit for bit, `cv2.resize(maximum(gray_a, gray_b), (84, 84), interpolation=INTER_AREA)`, where the
grays are those of `ALEInterface.getScreenGrayscale`. OpenCV sums in float32: across, with the weight of every source
column, and then down, with the weight of every source row; halves round to even. The kernel does the same sums in the
same order, so ties round alike. It skips work whose result is known:

- a line of the frame whose rows of the screens did not change since the last call is the line of the last frame;
- color indices are looked up in pairs (65,536 pairs of indices -> pairs of grays); this also separates even from odd
  columns, so the sums across run over contiguous memory;
- a row that equals the row above it in both screens keeps the sums of that row;
- a row that is equal in both screens is looked up once.

*Rows* are those of a screen, *lines* those of a frame.

`fastmath` stays off: fused or reordered sums would round otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shared.frame_shape import FRAME_SIDE, SCREEN_WIDTH

_PERIOD = 21
"""160 columns on 84 are 40 on 21, four times over: the weights across repeat with this period."""
_COLUMNS = 24
"""A period is computed in as many columns, with weight 0 beyond 21: whole vector registers of eight."""

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]


def area_weights(source: int, target: int) -> Floats:
    """Share of each of `source` pixels of a line in each of `target` output pixels: float32[target, source].

    Weights are overlaps divided by the width of an output pixel; computed in double and rounded once, and overlaps
    below 1e-3 dropped, as OpenCV documents INTER_AREA by its code (`computeResizeAreaTab`).
    """
    scale, pixels, columns = source / target, np.arange(target)[:, None], np.arange(source)
    low = pixels * scale
    overlaps = np.minimum((pixels + 1) * scale, columns + 1) - np.maximum(low, columns)
    overlaps[overlaps <= 1e-3] = 0
    return (overlaps / np.minimum(scale, source - low)).astype(np.float32)


def _across() -> Floats:
    """Weights of one period across: float32[4, 24], for columns 2k-2, 2k-1, 2k, 2k+1 of output pixel k."""
    shares = np.pad(area_weights(SCREEN_WIDTH, FRAME_SIDE), ((0, 0), (2, 0)))
    pixels, columns = np.arange(_PERIOD), np.arange(4)[:, None]
    return np.pad(shares[pixels, 2 * pixels + columns], ((0, 0), (0, _COLUMNS - _PERIOD)))


_ACROSS = _across()
"""Constant for the kernel, which is compiled with it."""


@cache
def _line(source: int, target: int) -> tuple[NDArray[np.int64], Floats]:
    """`area_weights` without most zeros: source pixels int64[target, n], weights float32[target, n], at least 4 wide.

    Beyond an output pixel's own parts the weight is 0 and the pixel is its last one.
    """
    shares = area_weights(source, target)
    first, parts = (shares > 0).argmax(1)[:, None], (shares > 0).sum(1)[:, None]
    numbers = np.arange(max(4, parts.max()))
    pixels = first + np.minimum(numbers, parts - 1)
    return pixels, np.where(numbers < parts, np.take_along_axis(shares, pixels, 1), np.float32(0))


def pair_table(grays: Bytes) -> NDArray[np.uint16]:
    """The table of pairs of pixels, uint16[65536], from a table of single ones, uint8[256]."""
    wide = grays.astype(np.uint16)
    return np.add.outer(256 * wide, wide).ravel()  # the first pixel of a pair is the low byte


@njit(cache=True, nogil=True)
def _find_stale(screens, rows, apart, stale, needed):  # type: ignore[no-untyped-def]
    """Mark the lines to compute again, `stale`, and the rows that they need, `needed`.

    A row is unchanged if both screens equal both shown ones there. So only the second of the shown screens is read.
    Lines whose rows differed between the shown screens, `apart`, are always computed again.
    """
    first, second, shown = screens[0].ravel(), screens[1].ravel(), screens[3].ravel()
    for line in range(84):
        start = np.uint64(20 * rows[line, 0])
        stop = np.uint64(20 * rows[line, 3] + 20)
        differs = apart[line]
        for k in range(start, stop):
            differs |= (first[k] ^ second[k]) | (second[k] ^ shown[k])
        stale[line] = differs != 0
        if stale[line]:
            needed[rows[line, 0] : rows[line, 3] + 1] = True
            differs = np.uint64(0)
            for k in range(start, stop):
                differs |= first[k] ^ second[k]
            apart[line] = differs


@njit(cache=True, nogil=True)
def _sum_across(screens, needed, pairs, sums, source):  # type: ignore[no-untyped-def]
    """Sums across the `needed` rows, pooled: `source` says which row of `sums` stands for each. Keeps them as shown."""
    low, eight = np.uint16(255), np.uint16(8)
    a, b, shown_a, shown_b = screens[0], screens[1], screens[2], screens[3]
    pairs_a, pairs_b = a.view(np.uint16), b.view(np.uint16)
    gray, other = np.empty(80, np.uint16), np.empty(80, np.uint16)
    # Pooled grays of a row, behind one zero and before zeros.
    even, odd = np.zeros(85, np.float32), np.zeros(85, np.float32)
    above = False
    for y in range(a.shape[0]):
        if not needed[y]:
            above = False
            continue
        for k in range(20):
            shown_a[y, k] = a[y, k]
        for k in range(20):
            shown_b[y, k] = b[y, k]
        if above:
            differs = np.uint64(0)
            for k in range(20):
                differs |= (a[y, k] ^ a[y - 1, k]) | (b[y, k] ^ b[y - 1, k])
            if differs == 0:
                source[y] = source[y - 1]
                continue
        above = True
        source[y] = y
        for k in range(80):
            gray[k] = pairs[pairs_a[y, k]]
        differs = np.uint64(0)
        for k in range(20):
            differs |= a[y, k] ^ b[y, k]
        if differs == 0:
            for k in range(80):
                even[k + 1] = np.float32(np.uint16(gray[k] & low))
                odd[k + 1] = np.float32(np.uint16(gray[k] >> eight))
        else:
            for k in range(80):
                other[k] = pairs[pairs_b[y, k]]
            for k in range(80):
                even[k + 1] = np.float32(np.uint16(max(np.uint16(gray[k] & low), np.uint16(other[k] & low))))
                odd[k + 1] = np.float32(np.uint16(max(np.uint16(gray[k] >> eight), np.uint16(other[k] >> eight))))
        for period in range(4):
            column, pixel = period * 20, period * 21
            for k in range(24):  # columns 21, 22, 23 are junk, which is overwritten or never read
                sums[y, pixel + k] = (
                    (even[column + k] * _ACROSS[0, k] + odd[column + k] * _ACROSS[1, k])
                    + even[column + k + 1] * _ACROSS[2, k]
                ) + odd[column + k + 1] * _ACROSS[3, k]


@njit(cache=True, nogil=True)
def _pool_and_shrink(screens, pairs, rows, down, apart, frame, out):  # type: ignore[no-untyped-def]
    """Pool and shrink two screens.

    Args:
        screens: uint64[4, height, 20], eight pixels a word: two new screens, and the two that `frame` shows, which
            become equal to the new ones.
        pairs: uint16[65536], grays of a pair of pixels.
        rows: int64[84, 4]; down: float32[84, 4]: which rows make a line, and their weights.
        apart: uint64[84]: not 0 where the two shown screens differ in the rows of a line.
        frame: uint8[84, 84]: the last frame, which becomes the new one.
        out: uint8[84, 84]: where the new frame is wanted too.
    """
    height = screens.shape[1]
    stale, needed = np.empty(84, np.bool_), np.zeros(height, np.bool_)
    _find_stale(screens, rows, apart, stale, needed)
    sums, source = np.empty((height, 87), np.float32), np.empty(height, np.int64)
    _sum_across(screens, needed, pairs, sums, source)
    for line in range(84):
        if stale[line]:
            row0, row1 = source[rows[line, 0]], source[rows[line, 1]]
            row2, row3 = source[rows[line, 2]], source[rows[line, 3]]
            weight0, weight1, weight2, weight3 = down[line, 0], down[line, 1], down[line, 2], down[line, 3]
            for x in range(84):
                total = ((sums[row0, x] * weight0 + sums[row1, x] * weight1) + sums[row2, x] * weight2) + (
                    sums[row3, x] * weight3
                )
                frame[line, x] = np.uint8(np.int32(np.rint(total)))
        for x in range(84):
            out[line, x] = frame[line, x]


def make_shrinker(screens: Bytes, pairs: NDArray[np.uint16]) -> Callable[[Bytes], None]:
    """Make a function that pools two screens and writes their frame into its argument (uint8[84, 84]).

    It keeps the last frame.

    Args:
        screens: uint8[4, height, 160] of one emulator, zeros of 84 to 250 lines: the two of the next frame, to be
            written by the caller, and the two of the last frame, which the function writes.
        pairs: `pair_table` of the colors.
    """
    rows, down = _line(screens.shape[1], FRAME_SIDE)
    apart = np.zeros(FRAME_SIDE, np.uint64)
    frame = np.full((FRAME_SIDE, FRAME_SIDE), pairs[0] & 0xFF, np.uint8)  # what screens of zeros become
    return partial(_pool_and_shrink, screens.view(np.uint64), pairs, rows, down, apart, frame)


@njit(cache=True, nogil=True)
def _shrink_area(gray, rows, down, columns, across, out):  # type: ignore[no-untyped-def]
    """Area average of an image of any size: uint8[height, width] -> uint8[lines, size], halves to even."""
    lines, size = out.shape
    for y in range(lines):
        for x in range(size):
            total = np.float32(0.0)
            for i in range(rows.shape[1]):
                row = np.float32(0.0)
                for j in range(columns.shape[1]):
                    row += gray[rows[y, i], columns[x, j]] * across[x, j]
                total += row * down[y, i]
            out[y, x] = np.uint8(np.int32(np.rint(total)))


def is_compiled() -> bool:
    """True if numba's cache on the disk holds a kernel for this Python, of this or an earlier version of its source."""
    kernel, python = _shrink_area.py_func, f"py{sys.version_info.major}{sys.version_info.minor}"
    index = f"{Path(kernel.__code__.co_filename).stem}.{kernel.__name__}-*.{python}.nbi"
    folder = _shrink_area.stats.cache_path
    return folder is not None and any(Path(folder).glob(index))


def shrink_area(gray: Bytes, out: Bytes) -> None:
    """Write an image of any size (uint8[height, width]) as its area average into `out` (uint8[size, size]).

    Every output pixel is the mean of the part of the image that it covers; smaller ones grow by that rule too.
    """
    if gray.shape == out.shape:
        out[:] = gray
        return
    height, width = gray.shape
    _shrink_area(gray, *_line(height, out.shape[0]), *_line(width, out.shape[1]), out)
