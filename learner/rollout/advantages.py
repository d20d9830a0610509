"""Targets from the rewards and values of a round, by one recursion backwards in time.

The tick after an end is the true last frame, where no action is taken (`valid` is False). Its value bootstraps a
truncated episode, and its own sum is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learner.rollout.on_policy_method import Rollout
from shared.config.method_declaration import VTraceSettings


def generalized_advantages(rollout: Rollout, values: NDArray[np.floating], trace: float) -> NDArray[np.float64]:
    """Generalized advantage estimates A_t [T, N] (Schulman et al. 2016, equation 16), in float64.

    A_t = d_t + gamma lambda (1 - ended_t) A_(t+1), where d_t is the TD error. With lambda = 1, A_t + V_t is the n-step
    return up to the end of the episode or of the round.

    Args:
        values: V(o_t) [T + 1, N]; the last row bootstraps episodes that continue after the round.
        trace: lambda.
    """
    return _discounted_sums(rollout, _td_errors(rollout, values), rollout.discount * trace * ~rollout.ended)


def v_trace(
    rollout: Rollout, values: NDArray[np.floating], ratio: NDArray[np.float64], settings: VTraceSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """V-trace targets v_t (Espeholt et al. 2018, section 4.1) and advantages (section 4.2), float64[T, N] each.

    With rho_t = min(rho_max, ratio_t), c_t = lambda min(c_max, ratio_t) and the TD error d_t:
    v_t - V_t = rho_t d_t + gamma (1 - ended_t) c_t (v_(t+1) - V_(t+1)), and the advantage is
    rho_t (r_t + gamma (1 - terminal_t) v_(t+1) - V_t).

    Args:
        values: V(o_t) [T + 1, N]; the last row bootstraps episodes that continue after the round.
        ratio: pi(a_t|o_t) / mu(a_t|o_t) [T, N], mu being the policy that acted.
        settings: `trace` is lambda.
    """
    rho, c = np.minimum(settings.rho_max, ratio), settings.trace * np.minimum(settings.c_max, ratio)
    decay = rollout.discount * ~rollout.ended * c
    above = _discounted_sums(rollout, rho * _td_errors(rollout, values), decay)
    returns = np.append(above, np.zeros_like(above[:1]), axis=0) + values
    # At the true last frame of an episode the sum is 0, so a truncated episode is bootstrapped from V.
    advantage = rho * rollout.valid * (_bootstrapped(rollout, returns) - values[:-1])
    return returns[:-1], advantage


def _bootstrapped(rollout: Rollout, values: NDArray[np.floating]) -> NDArray[np.float64]:
    """r_t + gamma (1 - terminal_t) V_(t+1) [T, N], in float64."""
    reward, values = rollout.reward.astype(np.float64), values.astype(np.float64)
    return reward + rollout.discount * ~rollout.terminal * values[1:]


def _td_errors(rollout: Rollout, values: NDArray[np.floating]) -> NDArray[np.float64]:
    """d_t = r_t + gamma (1 - terminal_t) V_(t+1) - V_t [T, N], in float64."""
    return _bootstrapped(rollout, values) - values[:-1]


def _discounted_sums(rollout: Rollout, error: NDArray[np.float64], decay: NDArray[np.floating]) -> NDArray[np.float64]:
    """x_t = e_t + decay_t x_(t+1) [T, N] where an action was taken, else 0."""
    sums = np.zeros((len(error) + 1, *error.shape[1:]))
    for t in reversed(range(len(error))):
        sums[t] = rollout.valid[t] * (error[t] + decay[t] * sums[t + 1])
    return sums[:-1]
