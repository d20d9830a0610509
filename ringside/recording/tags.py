"""The names of a run's values on dashboards: those that people's dashboards know (CleanRL's), where there are any."""

from __future__ import annotations

import math
from collections.abc import Mapping

ROUND_TAGS = {
    "mean_return_100": "charts/mean_return_100",
    "steps_per_second": "charts/SPS",
    "frames_per_second": "charts/frames_per_second",
    "updates_per_second": "charts/updates_per_second",
    "samples_per_step": "charts/samples_per_step",
    "epsilon": "charts/epsilon",
    "loss": "losses/td_loss",
    "mean_q": "losses/q_values",
    "gradient_norm": "losses/gradient_norm",
    "q_spread": "losses/q_spread",
    "outside_support": "losses/outside_support",
    "learner_busy": "busy/learner",
    "inference_busy": "busy/inference",
    "actors_busy": "busy/actors",
}
"""By the names of a round's values; SPS are the agent's steps in a second."""

Scalars = dict[str, float | int]


def round_scalars(values: Mapping[str, object]) -> Scalars:
    """Values of a round; those without a name in `ROUND_TAGS` are left out."""
    return _numbers({tag: values.get(name) for name, tag in ROUND_TAGS.items()})


def episode_scalars(total: float, length: int) -> Scalars:
    """A finished episode: its raw return, its steps."""
    return _numbers({"charts/episodic_return": total, "charts/episodic_length": length})


def evaluation_scalars(values: Mapping[str, object]) -> Scalars:
    """Everything in an evaluation that is a number."""
    return _numbers({f"eval/{name}": value for name, value in values.items()})


def _numbers(values: Mapping[str, object]) -> Scalars:
    return {tag: value for tag, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}
