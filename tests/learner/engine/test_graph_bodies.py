"""Updates and answers of every preset can be captured into graphs, and compute the same bits again.

The simulated GPU refuses in a capture what CUDA refuses: tensors of another device, and waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from learner.networks.policy import Policy
from shared.config.presets import PRESETS
from shared.network_spec import network_of
from tests.learner.test_gpu_schedules import ON_A_GPU
from tests.support.device_work import BATCH, Work, make_test_engine, played_ring
from tests.support.played_ring import ACTIONS
from tests.support.simulated_gpu import DEVICE, simulated_gpu

PRECISIONS = ("bf16", "fp32")
WORKS = [Work(preset, precision, graph_updates=2) for preset in ON_A_GPU for precision in PRECISIONS]
WORKS += [Work("impala", precision, graph_updates=2, recurrent=True) for precision in PRECISIONS]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _same_bits() -> Iterator[None]:
    """Refuse operations that add in any order, as a learner does."""
    former = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode(former)


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_updates_are_captured(work: Work) -> None:
    with simulated_gpu(0):
        engine: Any = make_test_engine(work, DEVICE, played_ring(work))
    assert all(len(graph.nodes) > 60 for graph in engine._graphs._graphs.values())


@pytest.mark.parametrize(
    "work", [*(Work(preset, "bf16") for preset in PRESETS), Work("a2c", "bf16", recurrent=True)], ids=str
)
def test_answers_are_captured(work: Work) -> None:
    with simulated_gpu(0):
        policy: Any = Policy(network_of(work.config, ACTIONS), DEVICE, work.precision, BATCH, explore_seed=1)
    assert len(policy._graphs._graphs["answer"].nodes) > 10
