"""A round with ends of every kind at random ticks, for tests of targets."""

import numpy as np

from learner.rollout.on_policy_method import Rollout

DISCOUNT = 0.99


def random_rollout(random: np.random.Generator, ticks: int = 40, envs: int = 50, outputs: int = 5) -> Rollout:
    """Steps of `envs` envs; the tick after the end of an episode is no state to act from."""
    terminal, ended = np.zeros((2, ticks, envs), bool)
    valid = np.ones((ticks, envs), bool)
    valid[0] = random.random(envs) > 0.3  # a round may begin with the true last frame of an episode
    for env in range(envs):
        for t in range(ticks):
            kind = random.random()
            if not valid[t, env]:
                continue
            ends_episode, life_lost = kind < 0.14, 0.14 <= kind < 0.2
            terminal[t, env] = kind < 0.08 or life_lost
            ended[t, env] = ends_episode or life_lost
            if ends_episode and t + 1 < ticks:
                valid[t + 1, env] = False
    return Rollout(
        reward=(random.integers(-1, 2, (ticks, envs)) * valid).astype(np.float32),
        terminal=terminal,
        ended=ended,
        valid=valid,
        action=random.integers(0, outputs - 1, (ticks, envs)),  # of an actor-critic, whose last output is a value
        log_prob=-random.random((ticks, envs)).astype(np.float32),
        outputs=random.normal(size=(ticks + 1, envs, outputs)).astype(np.float32),
        discount=DISCOUNT,
    )
