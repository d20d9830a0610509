"""Transitions of a worker's own replay buffer."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from learner.losses.td_learning import TDLearning
from learner.networks.frame_blocks import images_in
from learner.networks.modules import initial_parameters
from learner.replay.sampling import Replay
from shared.memory.run_memory import Memory
from tests.learner.networks.test_modules import CPU, make_reference
from tests.support.played_ring import PlayedRing
from tests.support.worker_memory import LANE_ENVS, T_MAX, worker_config, worker_memory
from tests.workers.test_gradients import models_of
from workers.gradients import Gradients, make_worker_method

WORKER, BATCH, WINDOW = 1, 64, 3


def _memory(**settings: object) -> tuple[Memory, PlayedRing]:
    """Windows of three gradients."""
    usual = {"method": "dqn", "local_replay": WINDOW * T_MAX * LANE_ENVS, "learning_starts": 1, "batch_size": BATCH}
    return worker_memory(worker_config(**usual | {"round_steps": 36} | settings))


def _gradients(memory: Memory) -> Gradients:
    """By other parameters of the target network than of the one that learns."""
    return Gradients(memory, *models_of(memory, 0, 1), make_worker_method(memory.plan, CPU), lambda *of_tick: [])


def _drawn(memory: Memory, worker: int, number: int) -> Any:
    """The source of a worker's gradients, which has drawn the batch of one."""
    source = _gradients(memory)._source
    with torch.inference_mode():
        source.differentiate(worker, number)
    return source


def test_transitions_are_those_of_the_worker_and_of_its_newest_steps() -> None:
    memory, played = _memory()
    end = 4 * T_MAX  # of gradient 3
    chunk = _drawn(memory, WORKER, 3)._chunk
    envs = range(WORKER * LANE_ENVS, (WORKER + 1) * LANE_ENVS)
    first = end - WINDOW * T_MAX + 3  # the stack of the first tick lies in the window
    own = [(tick, env) for tick in range(first, end) for env in envs if played._slots[tick]["valid"][env]]
    known = {played.transition(*place).state.tobytes(): played.transition(*place) for place in own}
    target = make_reference(memory.plan.network, initial_parameters(memory.plan.network, 1))
    frames, seen = images_in(chunk.blocks).numpy(), set()
    for i in range(BATCH):
        found = known[np.ascontiguousarray(frames[i, :4]).tobytes()]
        seen.add(found.state.tobytes())
        step = chunk.action_one_hot[i].argmax(), chunk.reward[i], chunk.discount[i] == 0.0
        assert step == (found.action, found.reward, found.ends)
        best = target.values(found.next_state[None]).max()
        assert chunk.target[i].item() == pytest.approx(found.reward + chunk.discount[i].item() * best.item(), abs=1e-4)
    assert len(seen) > len(own) // 2


def test_draws_are_a_function_of_worker_and_gradient() -> None:
    memory, _ = _memory()
    blocks = {place: _drawn(memory, *place)._chunk.blocks for place in ((1, 3), (1, 2))}
    assert torch.equal(blocks[1, 3], _drawn(memory, 1, 3)._chunk.blocks)
    assert not torch.equal(blocks[1, 3], blocks[1, 2])


def test_random_inputs_are_a_function_of_worker_and_gradient() -> None:
    memory, _ = _memory(method="iqn", iqn_samples=8)
    chunk = _drawn(memory, 1, 3)._chunk
    found = chunk.fractions.clone()
    chunk.draw_random_inputs(memory.plan.config.run.seed, 3, 1)
    assert torch.equal(found, chunk.fractions)


def test_settings_are_annealed_by_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in may have such settings; no built-in method with a replay buffer has one."""
    values = list[float]()
    monkeypatch.setattr(TDLearning, "anneal", lambda self, value_between: values.append(value_between(1.0, 0.0)))
    memory, _ = _memory(learning_rate_end=0.0, anneal_steps=144)
    assert memory.run_schedule.round_steps == 36
    _drawn(memory, WORKER, 3)
    assert values == [0.25]


def test_learning_begins_with_the_first_whole_gradient_after_the_steps_before_it() -> None:
    memory, _ = _memory(learning_starts=72)
    assert memory.run_schedule.first_learning_round == 2
    gradients = _gradients(memory)
    assert [gradients.compute(WORKER, number) for number in range(4)] == [False, False, True, True]


def test_every_gradient_draws_other_places_of_its_window() -> None:
    memory, _ = _memory()
    memory.ring.field["valid"][:] = 1
    with patch.object(Replay, "transitions", autospec=True, side_effect=Replay.transitions) as transitions:
        for worker, number in ((WORKER, 3), (WORKER, 4), (WORKER - 1, 3)):
            _drawn(memory, worker, number)
    drawn = [call.args[1] for call in transitions.call_args_list]
    first, second, other = drawn[0].tolist(), (drawn[1] - T_MAX).tolist(), drawn[2].tolist()
    assert first not in (second, other)
    window = range((4 - WINDOW) * T_MAX + 3, 4 * T_MAX)
    assert set(first) | set(second) <= set(window), "of windows of the same size"
