"""Advantages from the rewards and values of a round, by recursion backwards in time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generalized_advantages(
    reward: NDArray[np.floating],
    values: NDArray[np.floating],
    *,
    terminal: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    discount: float,
    trace: float,
) -> NDArray[np.float64]:
    """Generalized advantage estimates A_t [T, N] (Schulman et al. 2016, equation 16), in float64.

    d_t = r_t + gamma (1 - terminal_t) V_(t+1) - V_t and A_t = d_t + gamma lambda (1 - ended_t) A_(t+1). With lambda = 1
    A_t + V_t is the n-step return up to the end of the episode or of the round.

    The tick after an end is the true last frame, where no action is taken (`valid` is False): its value bootstraps a
    truncated episode, and its own advantage is 0.

    Args:
        reward: r_t [T, N].
        values: V(o_t) [T + 1, N]; the last row bootstraps episodes that continue after the round.
        terminal: True where nothing after the tick counts: a terminal state, or a lost life that counts.
        ended: True where `terminal` is, or where the episode was truncated.
        valid: True where an action was taken.
        discount: gamma.
        trace: lambda.
    """
    reward, values = reward.astype(np.float64), values.astype(np.float64)
    advantage = np.zeros_like(values)
    for t in reversed(range(len(reward))):
        error = reward[t] + discount * ~terminal[t] * values[t + 1] - values[t]
        advantage[t] = valid[t] * (error + discount * trace * ~ended[t] * advantage[t + 1])
    return advantage[:-1]
