"""Compilation of the frame kernels into numba's cache on disk."""

from __future__ import annotations

import numpy as np

from actors.pixels.bilinear import BilinearShrinker
from actors.pixels.frames import SCREEN_WIDTH, Shrinker, shrink_area
from shared.config.settings import FRAME_SIDE


def compile_kernels() -> None:
    """Compile every kernel that actors run once, so that they only load it."""
    out = np.empty((FRAME_SIDE, FRAME_SIDE), np.uint8)
    Shrinker(210, np.zeros(65_536, np.uint16))(out)
    BilinearShrinker(210, np.zeros((256, 256), np.uint8))(out)
    shrink_area(np.zeros((210, SCREEN_WIDTH), np.uint8), out)
