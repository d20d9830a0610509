"""The losses that learn distributions of returns: pure functions, in the symbols of the papers.

n is the number of transitions, A of actions, Z of atoms, N of quantiles, M of the target's quantiles. The rules at
the head of learner/losses/scalar_loss.py hold here, too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from numba import njit
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def categorical_projection(next_probabilities: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Phi T^ Z [n, Z], the distribution of r + gamma z projected on the atoms z (Bellemare et al. 2017, eq. 7).

    (Phi T^ Z)_i = sum_j [1 - |[r + gamma z_j] clipped to [z_0, z_(Z-1)] - z_i| / dz] clipped to [0, 1] times p_j, as a
    dense sum and not scattered, so that it is added in one order. Distances are measured in dz from z_0, where the
    places of the atoms are whole numbers, so that no rounding of z_i takes mass away.

    Args:
        next_probabilities: p_j(s', a*) [n, Z].
        reward: r [n].
        discount: gamma [n], 0 where the return ends.
        support: z [Z], at least two, evenly spaced and rising.
    """
    low, high = support[0], support[-1]
    places = torch.arange(len(support), dtype=support.dtype, device=support.device)
    shifted = (reward[:, None] + discount[:, None] * support).clamp(low, high)
    moved = (shifted - low) * ((len(support) - 1) / (high - low))
    share = (1.0 - (moved[:, None, :] - places[:, None]).abs()).clamp(0.0, 1.0)
    return (share * next_probabilities[:, None, :]).sum(2)


def cross_entropy(log_probabilities: Tensor, target: Tensor) -> Tensor:
    """-sum_i m_i log p_i(s, a) [n], of log p [n, Z] and m [n, Z] (Bellemare et al. 2017, algorithm 1)."""
    return -(target * log_probabilities).sum(1)


def expected_value(probabilities: Tensor, support: Tensor) -> Tensor:
    """Q = sum_i z_i p_i [...], of p [..., Z] and z [Z] (Bellemare et al. 2017, algorithm 1)."""
    return (probabilities * support).sum(-1)


def midpoints(count: int, *, device: torch.device | None = None) -> Tensor:
    """tau^_i = (2i - 1) / 2N for i = 1 ... N = `count`: the quantiles of QR-DQN (Dabney et al. 2018a, lemma 2)."""
    return ((torch.arange(count, dtype=torch.float64) + 0.5) / count).to(device, torch.float32)


def quantile_huber(theta: Tensor, tau: Tensor, target: Tensor) -> Tensor:
    """sum_i mean_j |tau_i - 1{u_ij < 0}| L(u_ij) with u_ij = target_j - theta_i, [n].

    L(u) is Huber's loss of width 1, u^2 / 2 where |u| <= 1 and |u| - 1/2 beyond: kappa = 1 in QR-DQN (Dabney et al.
    2018a, eq. 9 and 10) and in IQN (Dabney et al. 2018b, eq. 3).

    Args:
        theta: quantiles of Z(s, a) [n, N].
        tau: their fractions in (0, 1), [n, N] or [N].
        target: r + gamma theta_j(s', a*) [n, M].

    On a CPU a compiled loop computes it, unless its gradient by the target is wanted, which a learner never wants.
    """
    if theta.device.type == "cpu" and not target.requires_grad:
        return _QuantileHuber.apply(theta, tau, target)
    u = target[:, None, :] - theta[:, :, None]
    fraction = tau[..., :, None]
    error = F.huber_loss(u, torch.zeros_like(u), reduction="none")
    return (torch.where(u < 0.0, 1.0 - fraction, fraction) * error).mean(2).sum(1)


class _QuantileHuber(Function):
    """`quantile_huber` on a CPU: in one pass, which holds no [n, N, M]. By theta alone."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, tau: Tensor, target: Tensor) -> Tensor:
        loss, slope = torch.zeros_like(theta), torch.zeros_like(theta)
        given = (theta.detach().numpy(), tau.expand_as(theta).numpy(), target.numpy())
        _add_pairs(*given, loss.numpy(), slope.numpy())
        scale = 1.0 / target.shape[1]
        ctx.save_for_backward(slope.mul_(-scale))
        return loss.sum(1).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * by_loss[:, None], None, None


@njit(error_model="numpy", cache=True, nogil=True)
def _add_pairs(theta, tau, target, loss, slope):  # type: ignore[no-untyped-def]
    """Add w L(u) and w L'(u) of all pairs to loss and slope [n, N], w = |tau_i - 1{u_ij < 0}|.

    Target by target, so that a processor takes many i at once and every sum has one order.
    """
    kind = theta.dtype.type
    one, half, zero = kind(1.0), kind(0.5), kind(0.0)
    for row in range(theta.shape[0]):
        for y in target[row]:
            for i in range(theta.shape[1]):
                u = y - theta[row, i]
                weight = one - tau[row, i] if u < zero else tau[row, i]
                near = min(max(u, -one), one)
                loss[row, i] += weight * (near * (u - half * near))
                slope[row, i] += weight * near
