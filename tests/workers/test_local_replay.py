"""Transitions of a worker's own replay buffer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.networks.frame_blocks import planes_in
from learner.networks.make_model import make_model
from shared.memory.run_memory import Memory
from tests.support.played_ring import PlayedRing
from tests.support.worker_memory import LANE_ENVS, T_MAX, worker_config, worker_memory
from workers.gradients import Gradients, make_worker_method
from workers.local_replay import LocalReplay

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
WORKER, BATCH, WINDOW = 1, 64, 3


def _memory() -> tuple[Memory, PlayedRing]:
    """Windows of three gradients."""
    settings = {"method": "dqn", "local_replay": WINDOW * T_MAX * LANE_ENVS, "learning_starts": 1, "batch_size": BATCH}
    return worker_memory(worker_config(**settings, round_steps=36))


def _drawn(memory: Memory, worker: int, number: int) -> LocalReplay:
    models = [make_model(memory.plan.network, CPU, "fp32") for _ in range(2)]
    gradients = Gradients(memory, *models, make_worker_method(memory.plan, CPU), lambda *of_tick: [])
    source = gradients._source
    assert isinstance(source, LocalReplay)
    with torch.inference_mode():
        source.differentiate(worker, number)
    return source


def test_transitions_are_those_of_the_worker_and_of_its_newest_steps() -> None:
    memory, played = _memory()
    number = 3
    end = (number + 1) * T_MAX
    chunk = _drawn(memory, WORKER, number)._chunk
    envs = range(WORKER * LANE_ENVS, (WORKER + 1) * LANE_ENVS)
    first = end - WINDOW * T_MAX + 3  # the stack of the first tick lies in the window
    own = [(tick, env) for tick in range(first, end) for env in envs if played._slots[tick]["valid"][env]]
    known = {played.transition(*place).state.tobytes(): played.transition(*place) for place in own}
    frames = planes_in(chunk.blocks).numpy()
    seen = set()
    for i in range(BATCH):
        found = known[np.ascontiguousarray(frames[i, :4]).tobytes()]
        seen.add(found.state.tobytes())
        assert chunk.action_one_hot[i].argmax() == found.action
        assert chunk.reward[i] == found.reward
        assert (chunk.discount[i] == 0.0) == found.ends
    assert len(seen) > len(own) // 2


def test_draws_are_a_function_of_worker_and_gradient() -> None:
    memory, _ = _memory()
    blocks = {place: _drawn(memory, *place)._chunk.blocks for place in ((1, 3), (2, 3), (1, 2))}
    assert torch.equal(blocks[1, 3], _drawn(memory, 1, 3)._chunk.blocks)
    assert not torch.equal(blocks[1, 3], blocks[1, 2])
    assert not torch.equal(blocks[1, 3], blocks[2, 3])
