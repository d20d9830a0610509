"""Kernels that an update starts on a GPU: each costs two or three microseconds, however little it computes."""

from typing import Any

import pytest

from learner.make_engine import make_engine
from learner.networks.policy import Policy
from shared.frame_shape import FRAME_SIDE, STACK
from shared.network_spec import network_of
from tests.support.device_work import BATCH, Work, make_test_engine, played_ring
from tests.support.played_ring import ACTIONS, PlayedRing, small_config
from tests.support.simulated_gpu import DEVICE, simulated_gpu


@pytest.mark.parametrize(("optimizer", "most"), [("rmsprop", 52), ("adam", 48)])
def test_a_graph_of_an_update_has_few_kernels_and_no_copy(optimizer: str, most: int) -> None:
    """A network of usual size, in an update that is not the first of a chunk."""
    settings = {"device": str(DEVICE), "precision": "fp32", "graph_updates": 1}
    config = small_config(network="nature", optimizer=optimizer).with_settings(**settings)
    with simulated_gpu(0):
        engine: Any = make_engine(config, network_of(config, ACTIONS), PlayedRing(config).ring)
    nodes = engine._graphs._graphs[0, 1, 2].nodes
    kernels, *copied = map(sum, zip(*(node.cost for node in nodes), strict=True))
    assert sum(node.cost.kernels for node in nodes if "aten.convolution.default" in node.name) == 2 * 3
    assert 40 < kernels <= most
    assert copied == [0, 0]


def test_a_round_moves_its_new_frames_and_its_transitions_and_an_answer_its_stacks() -> None:
    work = Work("nature")
    played = played_ring(work, 2)
    schedule = played.run_schedule
    with simulated_gpu(0) as gpu:
        engine = make_test_engine(work, DEVICE, played)
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
