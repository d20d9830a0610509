"""Rounds of learning by several ranks: parameters, snapshots and metrics have the bits of one rank, in every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.support.device_work import Work, learn, played_ring
from tests.support.thread_ranks import in_ranks

CPU = torch.device("cpu")
SHARDS = 4
USUAL = ("quick", "ppo")
"""A replay buffer with Double DQN, and an on-policy method whose loss takes means over the whole minibatch."""
OTHERS = ("nature", "rainbow", "iqn", "btr", "a2c", "pqn", "impala")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("preset", [*USUAL, *(pytest.param(each, marks=pytest.mark.stress) for each in OTHERS)])
def test_the_number_of_ranks_changes_no_bit(preset: str) -> None:
    work = Work(preset, shards=SHARDS)
    played = played_ring(work)
    found = [each for size in (1, 2, 4) for each in in_ranks(size, lambda ranks: learn(work, CPU, played, ranks=ranks))]
    assert len(found) == 7
    assert (found[0]["first"] != found[0]["published 3"]).any(), "something was learned"
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, numbers in found[0].items():
            np.testing.assert_array_equal(numbers, other[name], err_msg=name)


def test_another_number_of_shards_gives_other_bits() -> None:
    """So the comparison above can fail."""
    played = played_ring(Work("quick"))
    one, other = (learn(Work("quick", shards=shards), CPU, played)["published 3"] for shards in (2, 4))
    assert (one != other).any()
    np.testing.assert_allclose(one, other, atol=1e-3)
