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
_LANES = 32
"""A period is computed in as many lanes, with weight 0 beyond 21: whole vector registers."""

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]


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
    """Weights of one period across: float32[4, 32], for columns 2k-2, 2k-1, 2k, 2k+1 of output pixel k."""
    weights = np.zeros((4, _LANES), np.float32)
    for pixel, parts in enumerate(area_weights(SCREEN_WIDTH, FRAME_SIDE)[:_PERIOD]):
        for column, weight in parts:
            weights[column - 2 * pixel + 2, pixel] = weight
    return weights


@cache
def _down(height: int) -> tuple[NDArray[np.int64], Floats]:
    """First source row (int64[84]) of each output row and the weights from there on (float32[84, most rows]).

    Also used for columns, where the width is not the emulator's.
    """
    table = area_weights(height, FRAME_SIDE)
    weights = np.zeros((FRAME_SIDE, max(map(len, table))), np.float32)
    for row, parts in enumerate(table):
        weights[row, : len(parts)] = [weight for _, weight in parts]
    return np.array([parts[0][0] for parts in table], np.int64), weights


def pair_table(greys: Bytes) -> NDArray[np.uint16]:
    """The table of pairs of pixels, uint16[65536], from a table of single ones, uint8[256]."""
    pairs = np.empty((256, 256, 2), np.uint8)  # [second pixel, first pixel]: memory order of a little-endian uint16
    pairs[..., 0] = greys[None, :]
    pairs[..., 1] = greys[:, None]
    return pairs.reshape(-1, 2).view("<u2").ravel().astype(np.uint16)


@njit(cache=True, nogil=True)
def _pool_and_shrink(a, b, pairs, across, first, down, sums, source, out):  # type: ignore[no-untyped-def]
    """Pool and shrink two screens.

    Args:
        a, b: uint16[height, 80], two screens, a pair of pixels a word.
        pairs: uint16[65536], greys of a pair of pixels.
        across: float32[4, 32]; first: int64[84]; down: float32[84, n]: the weights.
        sums: float32[height, 96], scratch: sums across of the rows that differ from the row above.
        source: int64[height], scratch: whose sums stand for each row.
        out: uint8[84, 84].
    """
    even = np.zeros(112, np.float32)  # one pair of zeros before the row, so that pixel -2 exists, and room behind
    odd = np.zeros(112, np.float32)
    for y in range(a.shape[0]):
        above = np.uint16(0)
        apart = np.uint16(0)
        if y > 0:
            for k in range(80):
                above |= (a[y, k] ^ a[y - 1, k]) | (b[y, k] ^ b[y - 1, k])
            if above == 0:
                source[y] = source[y - 1]
                continue
        for k in range(80):
            apart |= a[y, k] ^ b[y, k]
        if apart == 0:
            for k in range(80):
                grey = pairs[a[y, k]]
                even[k + 1] = np.float32(grey & 0xFF)
                odd[k + 1] = np.float32(grey >> 8)
        else:
            for k in range(80):
                grey = pairs[a[y, k]]
                other = pairs[b[y, k]]
                even[k + 1] = np.float32(max(grey & 0xFF, other & 0xFF))
                odd[k + 1] = np.float32(max(grey >> 8, other >> 8))
        source[y] = y
        for period in range(4):
            column = period * 20
            pixel = period * 21
            for k in range(32):  # lanes 21 ... 31 are junk that the next period, or nobody, reads
                sums[y, pixel + k] = (
                    (even[column + k] * across[0, k] + odd[column + k] * across[1, k])
                    + even[column + k + 1] * across[2, k]
                ) + odd[column + k + 1] * across[3, k]
    total = np.empty(84, np.float32)
    for y in range(84):
        row = source[first[y]]
        for x in range(84):
            total[x] = sums[row, x] * down[y, 0]
        for n in range(1, down.shape[1]):
            weight = down[y, n]
            if weight != 0.0:
                row = source[first[y] + n]
                for x in range(84):
                    total[x] += sums[row, x] * weight
        for x in range(84):
            out[y, x] = np.uint8(np.rint(total[x]))


class Shrinker:
    """Pools two screens of one height and shrinks them to 84x84; keeps tables and scratch memory (100 KB)."""

    def __init__(self, height: int, greys: Bytes) -> None:
        """`greys` is the table uint8[256] from a pixel of the screens to its grey."""
        self._first, self._weights = _down(height)
        self._pairs = pair_table(greys)
        self._sums = np.zeros((height, FRAME_SIDE - _PERIOD + _LANES + 1), np.float32)
        self._source = np.zeros(height, np.int64)
        self._rest = (self._pairs, _across(), self._first, self._weights, self._sums, self._source)

    def __call__(self, a: NDArray[np.uint16], b: NDArray[np.uint16], out: Bytes) -> None:
        """Write the frame of two screens (uint16[height, 80], see `as_pairs`) into `out` (uint8[84, 84])."""
        _pool_and_shrink(a, b, *self._rest, out)


def as_pairs(screen: Bytes) -> NDArray[np.uint16]:
    """A screen uint8[height, 160] seen as pairs of pixels, uint16[height, 80]; no copy."""
    return screen.view("<u2")


@njit(cache=True, nogil=True)
def _shrink_area(grey, first_row, rows, first_column, columns, out):  # type: ignore[no-untyped-def]
    """Area average of an image of any size: uint8[height, width] -> uint8[84, 84], halves to even."""
    for y in range(84):
        for x in range(84):
            total = np.float32(0.0)
            for i in range(rows.shape[1]):
                if rows[y, i] != 0.0:
                    across = np.float32(0.0)
                    for j in range(columns.shape[1]):
                        if columns[x, j] != 0.0:
                            across += grey[first_row[y] + i, first_column[x] + j] * columns[x, j]
                    total += across * rows[y, i]
            out[y, x] = np.uint8(np.rint(total))


def shrink_area(grey: Bytes, out: Bytes) -> None:
    """Write an image of any size (uint8[height, width]) as its area average into `out` (uint8[84, 84]).

    Every output pixel is the mean of the part of the image that it covers; smaller images are enlarged by that rule too.
    """
    if grey.shape == out.shape:
        out[:] = grey
        return
    height, width = grey.shape
    _shrink_area(grey, *_down(height), *_down(width), out)


IDENTITY = np.arange(256, dtype=np.uint8)
"""The grey table of a screen that is grey already."""


def compile_kernels() -> None:
    """Compile what actors run and leave it in numba's cache on disk, so that they only load it."""
    screen = as_pairs(np.zeros((210, SCREEN_WIDTH), np.uint8))
    out = np.empty((FRAME_SIDE, FRAME_SIDE), np.uint8)
    Shrinker(210, IDENTITY)(screen, screen, out)
    shrink_area(np.zeros((210, SCREEN_WIDTH), np.uint8), out)
