"""The bound of a learner: its passes, which must be complete."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ringside.bench.network_parts.passes import Passes
from shared.config.sections import Algorithm
from shared.memory.plan import Plan
from shared.network_parameters import parameters_of
from tests.support.played_ring import ACTIONS, make_algorithm, small_config

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(),
        Algorithm(double=True, dueling=True, noisy=True, n_step=3),
        make_algorithm(method="iqn", iqn_samples=4, iqn_policy_samples=2, munchausen=True),
        make_algorithm(method="c51", atoms=11, v_min=-2.0, v_max=2.0, double=True),
    ],
    ids=["plain", "parts", "implicit", "categorical"],
)
def test_every_pass_reaches_every_layer(algorithm: Algorithm) -> None:
    plan = Plan(small_config(algorithm), ACTIONS)
    passes = Passes(plan, torch.device("cpu"), "fp32")
    with torch.inference_mode():
        passes.run()
    canonical = np.zeros(parameters_of(plan.network).count, np.float32)
    passes.online.unpack(passes.gradient, canonical)
    assert np.isfinite(canonical).all()
    for name, part in parameters_of(plan.network).split(canonical).items():
        assert part.any(), name
    assert passes.chunk.target.any()
