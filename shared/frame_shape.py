"""Shape of what an agent sees: the size, the color and the number of its frames.

A frame is kept in planes: one of grays, or one each of red, green and blue. The planes of an observation are the input
channels of a network, which reads them in blocks of 4x4 pixels (learner/networks/frame_blocks.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

FrameColor = Literal["gray", "rgb"]
FRAME_SIDE = 84
STACK = 4
"""Defaults of --frame-size and --frame-stack. Code that serves a run takes the values of its `FrameShape`."""
MOST_SIDE = 512
MOST_STACK = 16
SCREEN_WIDTH = 160
"""Width of the screens of Atari games, and their greatest --frame-size."""
BLOCK = 4
"""Pixels along a side of a block."""
CELL = BLOCK * BLOCK
"""Pixels of a block."""


class FrameShape(NamedTuple):
    """Size and color of frames, and their number in an observation."""

    size: int = FRAME_SIDE
    """Pixels along a side, a multiple of `BLOCK`."""
    stack: int = STACK
    """Frames of an observation."""
    channels: int = 1
    """Planes of a frame: 1, gray, or 3, red, green and blue."""

    def __str__(self) -> str:
        frames = "frame" if self.stack == 1 else "frames"
        return f"{self.stack} {self.color} {frames} of {self.size}x{self.size}"

    @property
    def frame(self) -> tuple[int, ...]:
        """Shape of a frame: [size, size], or [3, size, size] in color."""
        return (self.size, self.size) if self.channels == 1 else (self.channels, self.size, self.size)

    @property
    def observation(self) -> tuple[int, ...]:
        """Shape of an observation: [stack, *frame]."""
        return (self.stack, *self.frame)

    @property
    def planes(self) -> int:
        """Planes of an observation, the input channels of a network."""
        return self.stack * self.channels

    @property
    def color(self) -> FrameColor:
        """Value of --frame-color."""
        return "gray" if self.channels == 1 else "rgb"

    @property
    def nbytes(self) -> int:
        """Bytes of a frame."""
        return self.channels * self.size**2

    @property
    def grid(self) -> int:
        """Blocks along a side of a frame."""
        return self.size // BLOCK

    def blocks(self, rows: int, planes: int | None = None) -> tuple[int, int, int, int]:
        """Shape of `rows` observations, or of so many times `planes`, cut into blocks."""
        return (rows, self.grid, self.grid, (planes or self.planes) * CELL)


DEFAULT_FRAMES = FrameShape()
