"""Names of a run's values: in its records, on dashboards and on screens.

A record of a round holds fields that every run has, and the metrics that its method declares. Dashboards show CleanRL's
names where CleanRL has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

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
"""Tag by name of a value; SPS are the agent's steps in a second. Other metrics have the tag losses/NAME."""

ROUND_FIELDS = frozenset(
    {"kind", "round", "steps", "frames", "updates", "seconds", "valid_steps", "episodes", "best_return"}
    | ROUND_TAGS.keys() - {"loss", "mean_q", "gradient_norm", "q_spread"}
)
"""Fields of a round's record that are no metric of a method."""

DIAGNOSTICS = frozenset({"gradient_norm", "q_spread"})
"""Metrics that screens leave out; records and dashboards have them."""
_LABELS = {"mean_q": "mean Q"}


Scalars = dict[str, float | int]


def metrics_of(record: Mapping[str, object]) -> list[str]:
    """Names of a method's metrics in the record of a round, in its order."""
    return [name for name in record if name not in ROUND_FIELDS]


def displayed(metrics: Iterable[str]) -> list[str]:
    """Names of the metrics that screens show."""
    return [name for name in metrics if name not in DIAGNOSTICS]


def label_of(metric: str) -> str:
    """Name of a metric on a screen."""
    return _LABELS.get(metric, metric.replace("_", " "))


def round_scalars(values: Mapping[str, object]) -> Scalars:
    """Values of a round that dashboards show: those named in `ROUND_TAGS`, and the metrics of its method."""
    tags = ROUND_TAGS | {name: f"losses/{name}" for name in metrics_of(values) if name not in ROUND_TAGS}
    return _numbers({tag: values.get(name) for name, tag in tags.items()})


def episode_scalars(total: float, length: int) -> Scalars:
    """A finished episode: its raw return, its steps."""
    return _numbers({"charts/episodic_return": total, "charts/episodic_length": length})


def evaluation_scalars(values: Mapping[str, object]) -> Scalars:
    """Everything in an evaluation that is a number."""
    return _numbers({f"eval/{name}": value for name, value in values.items()})


def _numbers(values: Mapping[str, object]) -> Scalars:
    return {tag: value for tag, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}
