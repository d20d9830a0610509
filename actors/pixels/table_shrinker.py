"""Pooling of two screens by a table of pairs of colors, for protocols and sizes without a kernel of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from actors.pixels.frames import Bytes
from shared.frame_shape import SCREEN_WIDTH


class TableShrinker:
    """Pools two screens of one emulator and shrinks them; the interface of `actors.pixels.frames.Shrinker`."""

    def __init__(self, height: int, pooled: Bytes, shrink: Callable[[Bytes, Bytes], None]) -> None:
        """A shrinker of screens of `height` lines.

        Args:
            pooled: uint8[256, 256], the gray of every pair of colors.
            shrink: writes a gray image into another of any size.
        """
        self.screens = np.zeros((2, height, SCREEN_WIDTH), np.uint8)
        """The two screens of the next frame, to be written: uint8[2, height, 160]."""
        self._shown = np.zeros_like(self.screens)
        self._table = pooled
        self.shrink = shrink
        """Writes a gray screen into a frame."""

    def __call__(self, out: Bytes) -> None:
        """Write the frame of `screens` into `out` (uint8[size, size])."""
        self._shown[:] = self.screens
        self.shrink(self.pooled(), out)

    def pooled(self) -> Bytes:
        """Gray of the last frame before it was shrunk: uint8[height, 160]."""
        return np.asarray(self._table[self._shown[0], self._shown[1]])

    def gray(self, screen: Bytes) -> Bytes:
        """Gray of one screen: uint8[height, 160]."""
        return np.asarray(self._table[screen, screen])
