"""Torsos of the user."""

from torch import nn

from shared.frame_shape import FrameShape


def make_torso(name: str, frames: FrameShape, seed: int) -> nn.Module:
    """A torso of the user, whose first values are drawn from a seed."""
    raise NotImplementedError
