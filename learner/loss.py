"""The loss of DQN, in the symbols of Mnih et al. 2015: y = r + gamma max_a' Q^(s', a')."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def bellman_target(reward: Tensor, discount: Tensor, next_q: Tensor) -> Tensor:
    """y float32[n] from r float32[n], gamma or 0 float32[n], and max_a' Q^(s', a') float32[n]."""
    return reward + discount * next_q


def clipped_error(q: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Huber loss of width 1 and its gradient, the error clipped to [-1, 1] (Mnih et al. 2015, Methods).

    Returns:
        loss float32[n] and d loss / d q float32[n].
    """
    return F.huber_loss(q, y, reduction="none"), (q - y).clamp_(-1.0, 1.0)
