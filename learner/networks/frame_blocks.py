"""Planes of frames cut into blocks of 4x4 pixels, which become channels: the input of every network.

A first convolution of 8x8 with stride 4 on 4 channels of 84x84 is then one of 2x2 with stride 1 on 64 channels of
21x21: the same sums, in a shape for which processors are made. Pixels go in as integers 0..255, which bfloat16 holds
exactly.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from shared.frame_shape import BLOCK, CELL

PIXEL = 1.0 / 255.0
"""Factor of the pixels; networks multiply their first weights by it instead."""


def blocks(planes: Tensor, out: Tensor) -> Tensor:
    """Cut planes uint8[n, k, 4 * g, 4 * g], contiguous, into blocks uint8[n, g, g, k * 16]: k of 4x4 pixels each.

    Returns:
        `out`.
    """
    n, k, grid = *planes.shape[:2], planes.shape[2] // BLOCK
    # Four pixels of a line travel as one 32-bit word: four times fewer elements to place.
    words = planes.view(torch.int32).view(n, k, grid, BLOCK, grid).permute(0, 2, 4, 1, 3)
    out.view(torch.int32).view(n, grid, grid, k, BLOCK).copy_(words)
    return out


def images_in(block: Tensor) -> Tensor:
    """The planes uint8[n, k, 4 * g, 4 * g] of `blocks`, channels-last in memory: its inverse."""
    planes = F.pixel_shuffle(block.permute(0, 3, 1, 2), BLOCK)  # on a CPU a quarter of the time of a permuted copy
    return planes.contiguous(memory_format=torch.channels_last)


def stack_in(block: Tensor, stack_offset: int, planes: int) -> Tensor:
    """The part of `blocks` with the stack of so many planes that begins with plane `stack_offset`."""
    return block[..., stack_offset * CELL : (stack_offset + planes) * CELL]


def network_input(stack: Tensor, dtype: torch.dtype) -> Tensor:
    """A stack of `stack_in` as dtype[n, planes * 16, g, g], channels-last, values 0..255."""
    return stack.permute(0, 3, 1, 2).to(dtype, memory_format=torch.channels_last)
