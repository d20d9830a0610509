"""The losses of the DQN family: pure functions, in the symbols of the papers; n is the number of transitions.

Results have the dtype of the arguments, float32 or float64. No function reads a value back to the CPU, takes a shape
from a value or adds in an order that may change. So a graph can capture all of them. None stops a gradient:
targets are computed where no gradient is recorded. distributional_loss.py has those of distributions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def bellman_target(reward: Tensor, discount: Tensor, next_q: Tensor) -> Tensor:
    """TD target y float32[n] from r float32[n], gamma or 0 float32[n], and max_a' Q^(s', a') float32[n].

    Mnih et al. 2015, algorithm 1: y = r + gamma max_a' Q^(s', a') (van Hasselt et al. 2016, equation 3).
    """
    return reward + discount * next_q


def clipped_error(q: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Huber loss of width 1 and its gradient, the error clipped to [-1, 1] (Mnih et al. 2015, Methods).

    With d = q - target it is 0.5 d^2 where |d| <= 1, else |d| - 0.5 (Huber 1964; Dabney et al. 2018a, equation 9,
    kappa 1).

    Returns:
        loss float32[n] and d loss / d q float32[n].
    """
    return F.huber_loss(q, target, reduction="none"), (q - target).clamp_(-1.0, 1.0)


def greedy_policy(q: Tensor) -> Tensor:
    """argmax_a Q(s, a) of q[n, A] as a one-hot [n, A] of q's dtype; of equal actions the first."""
    actions = torch.arange(q.shape[1], device=q.device)
    return (q.argmax(1, keepdim=True) == actions).to(q.dtype)


def select(values: Tensor, action_one_hot: Tensor) -> Tensor:
    """Values [n, ...] of the action taken, of values[n, A, ...] and action_one_hot[n, A].

    A value that is not finite, of whichever action, makes the result of its transition NaN.
    """
    return (values * action_one_hot.reshape(*action_one_hot.shape, *(1,) * (values.dim() - 2))).sum(1)


def soft_policy(q: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """log pi [n, A] and pi [n, A] of pi = softmax(q / tau), tau the temperature > 0, of q[n, A].

    The largest value is taken away before the division: at tau = 0.03 the quotients would lose digits. Log pi does not
    depend on it, so it needs no gradient.
    """
    log_pi = F.log_softmax((q - q.detach().amax(1, keepdim=True)) / temperature, dim=1)
    return log_pi, log_pi.exp()


def munchausen_reward(
    q_target_now: Tensor, action_one_hot: Tensor, *, alpha: float, temperature: float, lower: float
) -> Tensor:
    """alpha [tau log pi(a|s)] clipped to [l0, 0], [n]: what M-DQN adds to the reward.

    Vieillard et al. 2020, eq. 2, and their appendix for the clip; they take alpha = 0.9, tau = 0.03, l0 = -1.

    Args:
        q_target_now: Q(s, .; theta^-) [n, A], of the state that was acted in.
        action_one_hot: one-hot a [n, A].
        alpha: share of the log-policy that is added.
        temperature: tau > 0.
        lower: l0 < 0.
    """
    log_pi, _ = soft_policy(q_target_now, temperature)
    return alpha * (temperature * select(log_pi, action_one_hot)).clamp(lower, 0.0)


def rescale(x: Tensor, eps: float) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, of any shape (Pohlen et al. 2018, Proposition A.2).

    R2D2 takes eps = 0.001 (Kapturowski et al. 2019). Written so that nothing cancels near 0 and the gradient at 0 is
    what it should be, 1/2 + eps: sqrt(|x| + 1) - 1 = |x| / (sqrt(|x| + 1) + 1).
    """
    return x / ((x.abs() + 1.0).sqrt() + 1.0) + eps * x


def unrescale(x: Tensor, eps: float) -> Tensor:
    """h^-1(x) = sign(x) (((sqrt(1 + 4 eps (|x| + 1 + eps)) - 1) / (2 eps))^2 - 1), eps >= 0 (the same proposition).

    Written so that nothing cancels: u = sqrt(|h^-1(x)| + 1) - 1 solves eps u^2 + (1 + 2 eps) u = |x|, and
    |h^-1(x)| = u (u + 2). As it stands the formula is off by 1e-4 near 0 in float32.
    """
    b = 1.0 + 2.0 * eps
    u = 2.0 * x / ((b * b + 4.0 * eps * x.abs()).sqrt() + b)
    return u * (u.abs() + 2.0)


def importance_weights(probabilities: Tensor, beta: float) -> Tensor:
    """w_i = (1 / (N P(i)))^beta / max_j w_j [..., n], j in the batch (Schaul et al. 2016, section 3.4); N cancels.

    Args:
        probabilities: P(i) > 0 [..., n], with which the transitions were drawn.
        beta: share of the correction, 0 to 1.
    """
    weights = probabilities**-beta
    return weights / weights.amax(-1, keepdim=True)
