"""From the emulator's screens to the 84x84 frame in its ring slot, in one pass.

The result equals, bit for bit, `cv2.resize(maximum(grey_a, grey_b), (84, 84), interpolation=INTER_AREA)`, where the
greys are those of `ALEInterface.getScreenGrayscale`. OpenCV sums in float32: across, with the weight of every source
column, and then down, with the weight of every source row; halves round to even. The kernel does the same sums in the
same order, so ties fall alike; what it saves is work whose result is known:

- colour indices are looked up in pairs (65,536 pairs of indices -> pairs of greys), which also parts even columns
  from odd ones, so that the sums across run over contiguous memory;
- a row that equals the row above it in both screens keeps the sums of that row;
- a row that is equal in both screens is looked up once.

`fastmath` stays off: fused or reordered sums would round otherwise.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from math import ceil, floor
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.config import FRAME_SIDE

SCREEN_WIDTH = 160
_PERIOD = 21
"""160 columns on 84 are 40 on 21, four times over: the weights across repeat with this period."""
_LANES = 24
"""A period is computed in as many lanes, with weight 0 beyond 21: whole vector registers of eight."""

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint64]


def _writable_kernel_cache() -> None:
    """Name a folder for numba's compiled kernels where its own choices cannot be written.

    numba keeps them beside this file, or in the user's cache folder, and refuses to import a cached kernel when it
    can write neither. The folder carries the user's number and must be theirs: compiled code is loaded from it.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    here = Path(__file__).parent
    beside = here / "__pycache__"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if os.access(beside if beside.exists() else here, os.W_OK):
        return
    if os.access(next(folder for folder in (user, *user.parents) if folder.exists()), os.W_OK):
        return
    folder = Path(tempfile.gettempdir()) / f"ringside-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; set NUMBA_CACHE_DIR to a folder of your own.")
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


_writable_kernel_cache()
from numba import njit  # noqa: E402  (it reads NUMBA_CACHE_DIR when it is imported)


def area_weights(source: int, target: int) -> list[list[tuple[int, np.float32]]]:
    """What each of `target` output pixels takes from a line of `source` pixels: (source pixel, float32 weight).

    Weights are overlaps divided by the width of an output pixel; computed in double and rounded once, and overlaps
    below 1e-3 dropped, as OpenCV documents INTER_AREA by its code (`computeResizeAreaTab`).
    """
    scale = source / target
    table = []
    for pixel in range(target):
        low, high = pixel * scale, (pixel + 1) * scale
        width = min(scale, source - low)
        last = min(floor(high), source - 1)
        first = min(ceil(low), last)
        parts = []
        if first - low > 1e-3:
            parts.append((first - 1, np.float32((first - low) / width)))
        parts += [(index, np.float32(1.0 / width)) for index in range(first, last)]
        if high - last > 1e-3:
            parts.append((last, np.float32(min(high - last, 1.0, width) / width)))
        table.append(parts)
    return table


@cache
def _across() -> Floats:
    """Weights of one period across: float32[4, 24], for columns 2k-2, 2k-1, 2k, 2k+1 of output pixel k."""
    weights = np.zeros((4, _LANES), np.float32)
    for pixel, parts in enumerate(area_weights(SCREEN_WIDTH, FRAME_SIDE)[:_PERIOD]):
        for column, weight in parts:
            weights[column - 2 * pixel + 2, pixel] = weight
    return weights


@cache
def _line(source: int) -> tuple[NDArray[np.int64], Floats]:
    """`area_weights(source, 84)` as arrays: source pixels int64[84, n] and weights float32[84, n], at least 4 wide.

    Beyond an output pixel's own parts the weight is 0 and the pixel is its last one.
    """
    table = area_weights(source, FRAME_SIDE)
    widest = max(4, *map(len, table))
    pixels = np.array([[parts[min(n, len(parts) - 1)][0] for n in range(widest)] for parts in table], np.int64)
    weights = np.zeros((FRAME_SIDE, widest), np.float32)
    for pixel, parts in enumerate(table):
        weights[pixel, : len(parts)] = [weight for _, weight in parts]
    return pixels, weights


def pair_table(greys: Bytes) -> NDArray[np.uint16]:
    """The table of pairs of pixels, uint16[65536], from a table of single ones, uint8[256]."""
    pairs = np.empty((256, 256, 2), np.uint8)  # [second pixel, first pixel]: memory order of a little-endian uint16
    pairs[..., 0] = greys[None, :]
    pairs[..., 1] = greys[:, None]
    return pairs.view("<u2").ravel().astype(np.uint16)


@njit(cache=True, nogil=True)
def _pool_and_shrink(a, b, pairs, across, rows, down, sums, source, even, odd, out):  # type: ignore[no-untyped-def]
    """Pool and shrink two screens.

    Args:
        a, b: uint64[height, 20], two screens, eight pixels a word.
        pairs: uint16[65536], greys of a pair of pixels.
        across: float32[4, 24]; rows: int64[84, 4]; down: float32[84, 4]: the weights.
        sums: float32[height, 87], scratch: sums across of the rows that differ from the row above.
        source: int64[height], scratch: whose sums stand for each row.
        even, odd: float32[85], scratch: pooled greys of a row, behind one zero and before zeros.
        out: uint8[84, 84].
    """
    low = np.uint16(255)
    eight = np.uint16(8)
    pairs_a = a.view(np.uint16)
    pairs_b = b.view(np.uint16)
    grey = np.empty(80, np.uint16)
    other = np.empty(80, np.uint16)
    for y in range(a.shape[0]):
        if y > 0:
            differs = np.uint64(0)
            for k in range(20):
                differs |= (a[y, k] ^ a[y - 1, k]) | (b[y, k] ^ b[y - 1, k])
            if differs == 0:
                source[y] = source[y - 1]
                continue
        for k in range(80):
            grey[k] = pairs[pairs_a[y, k]]
        differs = np.uint64(0)
        for k in range(20):
            differs |= a[y, k] ^ b[y, k]
        if differs == 0:
            for k in range(80):
                even[k + 1] = np.float32(np.uint16(grey[k] & low))
                odd[k + 1] = np.float32(np.uint16(grey[k] >> eight))
        else:
            for k in range(80):
                other[k] = pairs[pairs_b[y, k]]
            for k in range(80):
                even[k + 1] = np.float32(np.uint16(max(np.uint16(grey[k] & low), np.uint16(other[k] & low))))
                odd[k + 1] = np.float32(np.uint16(max(np.uint16(grey[k] >> eight), np.uint16(other[k] >> eight))))
        source[y] = y
        for period in range(4):
            column = period * 20
            pixel = period * 21
            for k in range(24):  # lanes 21, 22, 23 are junk, which the next period overwrites or nobody reads
                sums[y, pixel + k] = (
                    (even[column + k] * across[0, k] + odd[column + k] * across[1, k])
                    + even[column + k + 1] * across[2, k]
                ) + odd[column + k + 1] * across[3, k]
    for y in range(84):
        row0 = source[rows[y, 0]]
        row1 = source[rows[y, 1]]
        row2 = source[rows[y, 2]]
        row3 = source[rows[y, 3]]
        weight0 = down[y, 0]
        weight1 = down[y, 1]
        weight2 = down[y, 2]
        weight3 = down[y, 3]
        for x in range(84):
            total = ((sums[row0, x] * weight0 + sums[row1, x] * weight1) + sums[row2, x] * weight2) + (
                sums[row3, x] * weight3
            )
            out[y, x] = np.uint8(np.int32(np.rint(total)))


class Shrinker:
    """Pools two screens of one height and shrinks them to 84x84; keeps tables and scratch memory (300 KB)."""

    def __init__(self, height: int, greys: Bytes) -> None:
        """`greys` is the table uint8[256] from a pixel of the screens to its grey; `height` is 84 to 250 lines."""
        rows, down = _line(height)
        sums = np.zeros((height, FRAME_SIDE - _PERIOD + _LANES), np.float32)
        source = np.zeros(height, np.int64)
        even, odd = np.zeros((2, SCREEN_WIDTH // 2 + 5), np.float32)
        self._rest = (pair_table(greys), _across(), rows, down, sums, source, even, odd)

    def __call__(self, a: Words, b: Words, out: Bytes) -> None:
        """Write the frame of two screens (uint64[height, 20], see `as_words`) into `out` (uint8[84, 84])."""
        _pool_and_shrink(a, b, *self._rest, out)


def as_words(screen: Bytes) -> Words:
    """A screen uint8[height, 160] seen as words of eight pixels, uint64[height, 20]; no copy."""
    return screen.view(np.uint64)


@njit(cache=True, nogil=True)
def _shrink_area(grey, rows, down, columns, across, out):  # type: ignore[no-untyped-def]
    """Area average of an image of any size: uint8[height, width] -> uint8[84, 84], halves to even."""
    for y in range(84):
        for x in range(84):
            total = np.float32(0.0)
            for i in range(rows.shape[1]):
                row = np.float32(0.0)
                for j in range(columns.shape[1]):
                    row += grey[rows[y, i], columns[x, j]] * across[x, j]
                total += row * down[y, i]
            out[y, x] = np.uint8(np.int32(np.rint(total)))


def shrink_area(grey: Bytes, out: Bytes) -> None:
    """Write an image of any size (uint8[height, width]) as its area average into `out` (uint8[84, 84]).

    Every output pixel is the mean of the part of the image that it covers; smaller ones grow by that rule too.
    """
    if grey.shape == out.shape:
        out[:] = grey
        return
    height, width = grey.shape
    _shrink_area(grey, *_line(height), *_line(width), out)


IDENTITY = np.arange(256, dtype=np.uint8)
"""The grey table of a screen that is grey already."""


def compile_kernels() -> None:
    """Compile what actors run and leave it in numba's cache on disk, so that they only load it."""
    screen = as_words(np.zeros((210, SCREEN_WIDTH), np.uint8))
    out = np.empty((FRAME_SIDE, FRAME_SIDE), np.uint8)
    Shrinker(210, IDENTITY)(screen, screen, out)
    shrink_area(np.zeros((210, SCREEN_WIDTH), np.uint8), out)
