"""Means of the metrics that a method declares."""

from __future__ import annotations

import torch

from learner.engine.round_means import RoundMeans


def test_a_metric_that_the_method_does_not_declare_is_left_out() -> None:
    """The engine gives the norm of the gradient with every method."""
    means = RoundMeans(("loss",), batch=2, device=torch.device("cpu"))
    means.add({"loss": torch.tensor([1.0, 3.0]), "gradient_norm": torch.tensor(5.0)})
    assert means.means(updates=1, chunks=1).means == {"loss": 2.0}
