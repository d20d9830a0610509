"""Names of a run's values: in its records, on dashboards and on screens.

A record of a round holds fields that every run has, and the metrics that its method declares. Dashboards show CleanRL's
names where CleanRL has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shared.config.method_declaration import METRIC_NAME, RECORD_FIELDS


class Metric(NamedTuple):
    """Description of a metric of a method."""

    label: str
    """Name on screens."""
    meaning: str
    """A sentence of explanation; empty: not known."""
    unit: str = ""
    tag: str = ""
    """Tag on dashboards; empty: losses/NAME."""


_METRICS = {
    "loss": Metric("loss", "Mean loss of the updates.", tag="losses/td_loss"),
    "mean_q": Metric("mean Q", "Mean over screens of the greatest action value.", tag="losses/q_values"),
    "gradient_norm": Metric("gradient norm", "Norm of the gradient before --clip-gradient bounds it."),
    "q_spread": Metric("Q spread", "Deviation of the greatest action value between screens; 0: they look alike."),
    "mean_value": Metric("mean value", "Mean of V(s), the value that the critic gives a screen."),
    "entropy": Metric(
        "entropy", "Randomness of the policy, from ln(actions) for uniform play to 0 for a fixed choice.", "nats"
    ),
    "kl": Metric(
        "KL",
        "KL between the new policy and the one that played. If it is large, updates are too big.",
        "nats",
        "losses/approx_kl",
    ),
    "clip_fraction": Metric(
        "clip fraction", "Share of steps whose ratio of probabilities the loss clipped.", tag="losses/clipfrac"
    ),
    "explained_variance": Metric(
        "explained variance", "Share of the variance of returns that V(s) explains; 1: all, 0 or less: nothing."
    ),
}
"""Metrics of the built-in methods; a metric of a plug-in has the words of its name as its label."""

_CHARTS = ("mean_return_100", "frames_per_second", "updates_per_second", "samples_per_step", "epsilon", "learning_rate")
ROUND_TAGS = {
    "steps_per_second": "charts/SPS",
    "outside_support": "losses/outside_support",
    **{name: f"charts/{name}" for name in _CHARTS},
    **{f"{roles}_busy": f"busy/{roles}" for roles in ("learner", "inference", "actors", "workers")},
}
"""Tag of a value of a record that is no metric of a method; SPS are the agent's steps in a second."""

DIAGNOSTICS = frozenset({"gradient_norm", "q_spread"})
"""Metrics that screens leave out; records and dashboards have them."""

Scalars = dict[str, float | int]


def metrics_of(record: Mapping[str, object]) -> list[str]:
    """Names of a method's metrics in the record of a round, in its order; a damaged record may have any keys."""
    return [name for name in record if name not in RECORD_FIELDS and METRIC_NAME.fullmatch(name)]


def displayed(metrics: Iterable[str]) -> list[str]:
    """Names of the metrics that screens show."""
    return [name for name in metrics if name not in DIAGNOSTICS]


def metric_of(name: str) -> Metric:
    """Description of a metric."""
    return _METRICS.get(name, Metric(name.replace("_", " "), ""))


def record_scalars(record: Mapping[str, object]) -> Scalars:
    """Values of a record that dashboards show, by tag: its numbers that are finite.

    Of a round those named in `ROUND_TAGS` and the metrics of its method; of an evaluation all but its time.
    """
    if record["kind"] == "episode":
        tags = {"return": "charts/episodic_return", "length": "charts/episodic_length"}
    elif record["kind"] == "evaluation":
        tags = {name: f"eval/{name}" for name in record.keys() - {"evaluation", "round", "steps", "seconds"}}
    else:
        metrics = metrics_of(record)
        tags = ROUND_TAGS | {name: metric_of(name).tag or f"losses/{name}" for name in metrics}
        if "loss" in metrics and "entropy" in metrics:
            tags["loss"] = "losses/loss"  # that of a policy is more than a TD error
    values = {tag: record.get(name) for name, tag in tags.items()}
    return {tag: value for tag, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}
