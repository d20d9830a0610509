"""Actions sampled from a categorical policy: a pure function of logits, seed, env and tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.prng import Stream, uniform


def sample(
    logits: NDArray[np.float32], seed: int, envs: NDArray[np.int64], ticks: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Actions uint8[n] of the softmax of logits [n, actions], and the logarithms float32[n] of their probabilities.

    (seed, env, tick) alone decides the random number: asked again, in whatever batch, a lane gets the same action.

    Raises:
        FloatingPointError: as `sample_at` does.
    """
    drawn = [uniform(seed, Stream.POLICY, env, tick) for env, tick in zip(envs.tolist(), ticks.tolist(), strict=True)]
    return sample_at(logits, np.array(drawn))


def sample_at(logits: NDArray[np.float32], draws: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """As `sample`: the inverse of the cumulative distribution at draws float64[n] in [0, 1). Computed in float64.

    Raises:
        FloatingPointError: a logit is not a number or infinite.
    """
    if not np.isfinite(logits).all():
        row = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
        raise FloatingPointError(f"The policy has the logits {logits[row].tolist()}; its parameters are broken.")
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    cumulative = np.exp(shifted).cumsum(axis=1)
    total = cumulative[:, -1]
    below = (cumulative <= (draws * total)[:, None]).sum(axis=1)
    actions = np.minimum(below, logits.shape[1] - 1)  # the product may round up to the total
    log_prob = shifted[np.arange(len(actions)), actions] - np.log(total)
    return actions.astype(np.uint8), log_prob.astype(np.float32)


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The softmax float32[n, actions] of logits."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
