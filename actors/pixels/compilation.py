"""Compilation of the frame kernels into numba's cache on disk."""

from __future__ import annotations

import numpy as np

from actors.pixels.bilinear import shrink_bilinear
from actors.pixels.frames import Shrinker, shrink_area
from shared.frame_shape import FRAME_SIDE, SCREEN_WIDTH


def compile_kernels() -> None:
    """Compile every kernel that actors run once, so that they only load it."""
    out = np.empty((FRAME_SIDE, FRAME_SIDE), np.uint8)
    Shrinker(210, np.zeros(65_536, np.uint16))(out)
    for shrink in (shrink_bilinear, shrink_area):
        shrink(np.zeros((210, SCREEN_WIDTH), np.uint8), out)
