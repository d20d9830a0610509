"""Rounds of learning by several ranks: parameters, snapshots and metrics have the bits of one rank, in every rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.networks.sharded import Ranks
from tests.support.device_work import Numbers, Work, learn
from tests.support.thread_ranks import in_ranks

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SHARDS = 4
USUAL = ("quick", "ppo")
"""A replay buffer with Double DQN, and an on-policy method whose loss takes means over the whole minibatch."""
OTHERS = ("nature", "rainbow", "iqn", "btr", "a2c", "pqn", "impala")


@pytest.mark.parametrize("preset", USUAL)
def test_two_ranks_have_the_bits_of_one(preset: str) -> None:
    _require_same(preset, (1, 2), rounds=2)


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize("preset", USUAL + OTHERS)
def test_the_number_of_ranks_changes_no_bit(preset: str) -> None:
    _require_same(preset, (1, 2, 4), rounds=3)


def _require_same(preset: str, sizes: tuple[int, ...], rounds: int) -> None:
    """Require the same numbers of every rank, with each of these numbers of ranks."""
    work = Work(preset, shards=SHARDS)

    def learn_as(ranks: Ranks | None) -> Numbers:
        return learn(work, CPU, rounds, ranks)

    found = [numbers for size in sizes for numbers in in_ranks(size, learn_as)]
    assert len(found) == sum(sizes)
    last = f"published {rounds}"
    assert (found[0]["first"] != found[0][last]).any(), "something was learned"
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, numbers in found[0].items():
            np.testing.assert_array_equal(numbers, other[name], err_msg=name)


@pytest.mark.stress
def test_another_number_of_shards_gives_other_bits() -> None:
    """So the comparison above can fail."""
    one, other = (learn(Work("quick", shards=shards), CPU, 3)["published 3"] for shards in (2, 4))
    assert (one != other).any()
    np.testing.assert_allclose(one, other, atol=1e-3)
