"""V-trace: the actor-critic of IMPALA, whose targets correct for an older policy (Espeholt et al. 2018)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learner.methods.a2c import A2C
from learner.rollout.actor_critic import MOST_LOG_RATIO, step_targets
from learner.rollout.advantages import v_trace
from learner.rollout.on_policy_method import Rollout, StepTargets
from shared.config.method_declaration import VTraceSettings


class VTrace(A2C):
    """policy loss = -rho (r + gamma v' - V) log pi(a|s), value loss = (V - v)^2 / 2, summed over the minibatch.

    v are the V-trace targets. They and rho are computed once a round, with the network at its beginning.
    """

    mean_gradient = False

    def targets(self, rollout: Rollout) -> StepTargets:
        """V-trace targets and advantages."""
        settings, values = self.settings_as(VTraceSettings), rollout.outputs[:, :, -1]
        returns, advantage = v_trace(rollout, values, importance_ratio(rollout), settings)
        return step_targets(rollout, advantage, returns)


def importance_ratio(rollout: Rollout) -> NDArray[np.float64]:
    """pi(a|o) / mu(a|o) [T, N]: pi is the policy of the outputs, mu the one that acted."""
    logits = rollout.outputs[:-1, :, :-1].astype(np.float64)
    logits -= logits.max(axis=2, keepdims=True)
    taken = np.take_along_axis(logits, rollout.action[:, :, None], axis=2)[:, :, 0]
    log_ratio = taken - np.log(np.exp(logits).sum(axis=2)) - rollout.log_prob
    return np.exp(log_ratio.clip(-MOST_LOG_RATIO, MOST_LOG_RATIO))
