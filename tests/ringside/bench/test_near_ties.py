"""The canonical arithmetic of the bench of near-ties is that of the network."""

from __future__ import annotations

import numpy as np
import pytest

from ringside.bench.network_parts.near_ties import BATCH, answers, canonical_seconds


@pytest.mark.stress
def test_the_canonical_arithmetic_is_the_networks() -> None:
    stacks = np.random.default_rng(1).integers(0, 256, (BATCH, 4, 84, 84), np.uint8)
    values, _ = answers("zoo/pong", stacks, "fp32", 1)
    assert canonical_seconds("zoo/pong", stacks, values) is not None
    with pytest.raises(AssertionError, match="another network"):
        canonical_seconds("zoo/pong", stacks, values + 1)
