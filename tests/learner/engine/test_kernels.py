"""Kernels that an update starts on a GPU: each costs two or three microseconds, however little it computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from learner.engine.side_stream import SideStream
from learner.networks.policy import Policy
from shared.frame_shape import FRAME_SIDE, STACK
from shared.network_spec import network_of
from tests.support.device_work import BATCH, Work, played_ring
from tests.support.device_work import make_test_engine as engine_on
from tests.support.played_ring import ACTIONS, PlayedRing, make_test_engine, small_config
from tests.support.simulated_gpu import DEVICE, simulated_gpu
from tests.support.simulated_gpu.operations import kernels_of


class Count(TorchDispatchMode):
    """Counts the kernels that the operations within would start on a GPU, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.kernels[name] += kernels_of(name, args)
        return func(*args, **(kwargs or {}))


def _kernels(optimizer: str, precision: str, network: str = "nature") -> Counter[str]:
    """Kernels of one update of a network, as it runs on a GPU; not the first of a chunk."""
    config = small_config(network=network, optimizer=optimizer)
    played = PlayedRing(config)
    played.play(4 * played.run_schedule.round_ticks)
    engine = make_test_engine(played, config, precision)
    engine.begin_round(4, played.ticks)
    engine.run(1)
    engine._optimizer._compiled = False
    engine._side_stream = SideStream()
    with torch.no_grad(), Count() as count:
        engine._updates(0, 1, 2)
    return count.kernels


@pytest.mark.parametrize(("optimizer", "precision", "most"), [("rmsprop", "fp32", 52), ("adam", "fp32", 48)])
def test_an_update_starts_few_kernels(optimizer: str, precision: str, most: int) -> None:
    kernels = _kernels(optimizer, precision)
    assert kernels["convolution"] == 2 * 3  # the counting sees what is there
    assert kernels.total() <= most, kernels


def test_a_graph_of_an_update_has_those_kernels_and_no_copy() -> None:
    work = Work("nature", graph_updates=1)
    with simulated_gpu(0):
        engine = engine_on(work, DEVICE, played_ring(work))
        assert engine._graphs is not None
        nodes: Any = engine._graphs._graphs[0, 1, 2].nodes  # type: ignore[attr-defined]
    cost = sum((node.cost for node in nodes[1:]), nodes[0].cost)
    assert cost == (_kernels("rmsprop", "fp32", "small").total(), 0, 0)


def test_a_round_moves_its_new_frames_and_its_transitions_and_an_answer_its_stacks() -> None:
    work = Work("nature")
    played = played_ring(work, 2)
    schedule = played.run_schedule
    with simulated_gpu(0) as gpu:
        engine = engine_on(work, DEVICE, played)
        engine.run(engine.begin_round(1, schedule.window_end(1)))
        engine.settle()
        before = gpu.cost
        updates = engine.begin_round(2, schedule.window_end(2))
        engine.run(updates)
        engine.settle()
        frames = schedule.round_ticks * schedule.envs * FRAME_SIDE**2
        # Five places and flags of frames, action, reward and discount.
        transitions = updates * work.config.learn.batch_size * (5 * 8 + 5 + 8 + 4 + 4)
        assert gpu.cost.uploaded - before.uploaded == frames + transitions
        assert gpu.cost.downloaded == before.downloaded
        policy = Policy(network_of(work.config, ACTIONS), DEVICE, "fp32", BATCH)
        before = gpu.cost
        policy.rehearse()
        assert gpu.cost.uploaded - before.uploaded == BATCH * STACK * FRAME_SIDE**2
        assert gpu.cost.downloaded - before.downloaded == BATCH * ACTIONS * 4
