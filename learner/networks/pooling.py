"""Maximum pooling of 3x3 with stride 2 and a border of 1, with a backward pass of one order on every device.

On a CPU PyTorch's pooling has a fixed order already. On CUDA its backward pass adds with atomic operations, in an order
that the hardware chooses. Here each position in the window is one addition, and no two windows share its targets.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SIZE, STRIDE, BORDER = 3, 2, 1


def max_pool(x: Tensor) -> Tensor:
    """[n, channels, (y + 1) // 2, (x + 1) // 2] of [n, channels, y, x]. Of equal maxima the first has the gradient.

    On 11x11 it is the adaptive pooling to 6x6 that BTR has, window for window.
    """
    if x.device.type == "cpu":
        return F.max_pool2d(x, SIZE, STRIDE, BORDER)
    return MaxPool.apply(x)


class MaxPool(torch.autograd.Function):
    """`max_pool` for devices on which PyTorch's backward pass has no fixed order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The pooled features; their positions are kept for the backward pass."""
        pooled, where = F.max_pool2d_with_indices(x, (SIZE, SIZE), (STRIDE, STRIDE), (BORDER, BORDER))
        ctx.save_for_backward(where)
        ctx.shape = x.shape
        return pooled

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Each of the 9 places of a window in turn."""
        (where,) = ctx.saved_tensors
        n, channels, height, width = ctx.shape
        rows, columns = gradient.shape[2:]
        # As convolutions on a GPU have their images, so that nothing here goes against the order of memory.
        padded = gradient.new_zeros(n, STRIDE * rows + 1, STRIDE * columns + 1, channels).permute(0, 3, 1, 2)
        top = torch.arange(rows, device=gradient.device)[:, None] * STRIDE - BORDER
        left = torch.arange(columns, device=gradient.device) * STRIDE - BORDER
        # Where in its window each maximum lies: in bytes, which are read nine times, where these are large enough.
        last = (SIZE - 1) * width + SIZE - 1
        within = (where - (top * width + left)).to(torch.uint8 if last < 256 else torch.int16)
        for dy in range(SIZE):
            for dx in range(SIZE):
                part = padded[:, :, dy : dy + STRIDE * rows : STRIDE, dx : dx + STRIDE * columns : STRIDE]
                part.add_(gradient * (within == dy * width + dx))
        return padded[:, :, BORDER : BORDER + height, BORDER : BORDER + width]
