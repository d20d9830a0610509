"""Answers of the inference server to the evaluation actor: greedy actions, or those of a policy at given draws."""

from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch

from learner import inference
from learner.inference import EvaluationServer
from learner.networks.categorical import probabilities
from learner.networks.policy import Policy
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped
from tests.support.configurations import settled

ENVS = 64
CPU = torch.device("cpu")
SAMPLED = {"method": "a2c", "envs": 8, "round_steps": 80, "batch_size": 80}
GREEDY = SAMPLED | {"eval_actions": "greedy"}


def make_memory(episodes: int, **settings: Any) -> Memory:
    """A run's memory with an evaluation in its queue."""
    evaluation = {"eval_every_steps": 80, "eval_episodes": episodes, "eval_envs": episodes}
    memory = Memory.create(Plan(settled(network="small", **evaluation, **settings), actions=4))
    memory.arena.close()  # its mapping stays
    queue = memory.evaluations
    queue.data[0] = np.random.default_rng(3).normal(0, 0.1, queue.data.shape[1])
    queue.queued.publish(1)
    return memory


def _answered(memory: Memory, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actions for one screen in all envs at these draws, and the logits or Q-values [actions] of the screen."""
    policy, queue = Policy(memory.plan.network, CPU, "fp32", ENVS), memory.evaluations
    queue.stacks[:] = np.random.default_rng(4).integers(0, 256, queue.stacks.shape[1:], np.uint8)
    queue.draws[:] = draws
    queue.ask(0, 1)
    server = EvaluationServer(memory, policy)
    assert server.due()
    server.answer()
    assert not server.due()
    return queue.actions.copy(), policy.values(queue.stacks.copy())[0]


def test_a_policy_is_sampled_at_the_draws_of_the_request() -> None:
    draws = (np.arange(ENVS) + 0.5) / ENVS
    actions, logits = _answered(make_memory(ENVS, **SAMPLED), draws)
    expected = probabilities(logits[None])[0]
    assert expected.max() < 0.9
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / ENVS, expected, atol=1.5 / ENVS)
    assert (np.diff(actions.astype(int)) >= 0).all(), "the action rises with the draw"
    again, _ = _answered(make_memory(ENVS, **SAMPLED), draws)
    assert np.array_equal(again, actions)


@pytest.mark.parametrize("settings", [{"method": "dqn", "envs": 8}, GREEDY])
def test_greedy_actions_do_not_depend_on_draws(settings: dict[str, Any]) -> None:
    actions, values = _answered(make_memory(ENVS, **settings), np.random.default_rng(1).random(ENVS))
    assert (actions == values.argmax()).all()


def test_a_server_that_is_killed_before_its_reply_gives_the_same_one() -> None:
    """The state of an LSTM is not written over that with which the request is answered; episodes begin with zeros."""
    memory = make_memory(4, **GREEDY, recurrent=True)
    queue = memory.evaluations
    stacks = np.random.default_rng(3).integers(0, 256, (5, *queue.stacks.shape), np.uint8)
    starts = np.zeros((5, 4), np.uint8)
    starts[0], starts[3, 2] = 1, 1
    queue.recurrent_state[:] = 9.0  # of an evaluation before

    reference = Policy(memory.plan.network, CPU, "fp32", 4)
    reference.load(queue.data[0])
    state = reference.fresh_state()
    for number in range(5):
        state[starts[number] == 1] = 0
        logits = reference.values(stacks[number], state)
        state = reference.next_state
        queue.stacks[:], queue.starts[:] = stacks[number], starts[number]
        queue.ask(0, number + 1)
        asked = queue.asked
        EvaluationServer(memory, Policy(memory.plan.network, CPU, "fp32", 4)).answer()
        first = queue.actions.copy()
        queue.reply.publish(0)  # as if it had died before the reply
        assert queue.asked == asked
        EvaluationServer(memory, Policy(memory.plan.network, CPU, "fp32", 4)).answer()
        assert first.tolist() == queue.actions.tolist() == logits.argmax(1).tolist()
        np.testing.assert_array_equal(queue.recurrent_state[(number + 1) % 2], state)


def test_answers_to_evaluations_are_progress_of_a_run_with_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else deaths in the whole run would count as deaths in a row."""
    memory = make_memory(2, method="a2c", schedule="ordered", workers=2, lane_envs=4, t_max=5, actors=1)
    process, queue, points = memory.plan.processes.index_of(Role.INFERENCE), memory.evaluations, list[int]()
    memory.board.furthest[process] = 7
    queue.ask(0, 1)

    # There is nothing to do: the run stops.
    waiter = Mock(wait=Mock(side_effect=Stopped), note_progress=points.append)
    monkeypatch.setattr(inference, "enter", lambda child_spec: (memory, waiter))
    inference.main(Mock(process=process, doorbells=MagicMock(of_role=lambda role: [])))
    assert points == [8]
