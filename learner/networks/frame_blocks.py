"""Planes of frames cut into blocks of 4x4 pixels, which become channels: the input of every network.

A first convolution of 8x8 with stride 4 on 4 channels of 84x84 is then one of 2x2 with stride 1 on 64 channels of
21x21: the same sums, in a shape for which processors are made. Pixels go in as integers 0..255, which bfloat16 holds
exactly.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numba import njit
from torch import Tensor

from learner.engine.accelerator import is_gpu
from shared.frame_shape import BLOCK, CELL

PIXEL = 1.0 / 255.0
"""Factor of the pixels; networks multiply their first weights by it instead."""
BORDER = 4
"""Pixels by which a frame is continued on every side before an augmented part of its size is cut out."""


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


def images_in(stack: Tensor, dtype: torch.dtype = torch.uint8) -> Tensor:
    """The planes dtype[n, k, 4 * g, 4 * g] of `blocks`, channels-last in memory: its inverse. Floats are in 0..1."""
    factor = PIXEL if dtype.is_floating_point else 1
    if is_gpu(stack.device) or torch.compiler.is_compiling():  # which traces no compiled loop
        planes = F.pixel_shuffle(stack.permute(0, 3, 1, 2), BLOCK).contiguous(memory_format=torch.channels_last)
        return planes.to(dtype).mul_(factor)
    (n, grid), bits = stack.shape[:2], (torch.uint8, torch.int16, torch.int32)[dtype.itemsize // 2]
    words = stack.numpy().view(np.uint32).reshape(n * grid, grid, -1, BLOCK)
    images, shades = torch.empty(n * grid, BLOCK, grid, BLOCK, words.shape[2], dtype=dtype), torch.arange(256).to(dtype)
    write_pixels(words, shades.mul_(factor).view(bits).numpy(), images.view(bits).numpy())
    return images.view(n, BLOCK * grid, BLOCK * grid, -1).permute(0, 3, 1, 2)


def stack_in(block: Tensor, stack_offset: int, planes: int) -> Tensor:
    """The part of `blocks` with the stack of so many planes that begins with plane `stack_offset`."""
    return block[..., stack_offset * CELL : (stack_offset + planes) * CELL]


def network_input(stack: Tensor, dtype: torch.dtype) -> Tensor:
    """A stack of `stack_in` as dtype[n, planes * 16, g, g], channels-last, values 0..255."""
    return stack.permute(0, 3, 1, 2).to(dtype, memory_format=torch.channels_last)


# Loops for a CPU, in one pass over memory. Four pixels of a line are one 32-bit word.


@njit(error_model="numpy", cache=True, nogil=True)
def write_pixels(words, shades, out):  # type: ignore[no-untyped-def]
    """The planes of blocks, channels-last, with a shade for each of the 256 numbers.

    Args:
        words: uint32[n * g, g, k, 4].
        shades, out: [256] and [n * g, 4, g, 4, k] of one dtype.
    """
    for i in range(words.shape[0]):
        for y in range(BLOCK):
            for x in range(words.shape[1]):
                for k in range(words.shape[2]):
                    for dx in range(BLOCK):
                        out[i, y, x, dx, k] = shades[(words[i, x, k, y] >> 8 * dx) & 255]


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
