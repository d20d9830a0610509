"""Means of the metrics that a method declares."""

import pytest
import torch

from learner.engine.round_means import RoundMeans
from shared.errors import FatalError


def test_samples_are_averaged_over_all_updates_and_scalars_over_chunks() -> None:
    means = RoundMeans(("loss", "gradient_norm"), batch=2, device=torch.device("cpu"))
    means.add({"gradient_norm": torch.tensor(5.0)}, scale=2.0)
    for _ in range(2):
        means.add({"loss": torch.tensor([1.0, 3.0])})
    assert means.means(updates=2, chunks=1).means == {"loss": 2.0, "gradient_norm": 10.0}


def test_a_metric_that_the_declaration_does_not_name_is_refused() -> None:
    means = RoundMeans(("loss",), batch=2, device=torch.device("cpu"))
    with pytest.raises(FatalError, match="gives the metric 'los', and its declaration names loss: add it to the"):
        means.add({"los": torch.ones(2)})
