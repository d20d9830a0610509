"""Answers to lanes: a part of a batch gets what the whole batch would, and the state of an LSTM with it."""

from typing import Any

import numpy as np
import pytest
import torch

from learner.answers import Answers
from learner.networks.categorical import probabilities, sample
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from shared.memory.mailbox import request_number
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from tests.support.configurations import settled

LANES, LANE_ENVS, BATCH, ACTIONS = 4, 3, 6, 4
SHAPE: dict[str, Any] = {"envs": LANES * LANE_ENVS, "lane_envs": LANE_ENVS, "inference_batch": BATCH, "actors": 1}
SHAPE |= {"network": "small", "round_steps": 120, "snapshot_every_steps": 120, "total_steps": 1_200}
A2C = {"method": "a2c", "batch_size": 120}
DQN = {"replay_size": 600}
CASES: dict[str, dict[str, Any]] = {
    "greedy": DQN,
    "noisy": DQN | {"noisy": True},
    "sampled": A2C,
    "recurrent": A2C | {"recurrent": True},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
@pytest.mark.parametrize("asking", [[2, 3], [2], [3]])
def test_a_part_of_a_batch_is_answered_as_the_whole(asking: list[int], settings: dict[str, Any]) -> None:
    """Lanes of a batch may be at different ticks. The state of an LSTM comes from the slot before."""
    memory = Memory.create(Plan(settled(**SHAPE, **settings), ACTIONS))
    plan, mailbox, field, random = memory.plan, memory.mailbox, memory.ring.field, np.random.default_rng(1)
    field["frame"][:] = random.integers(0, 256, field["frame"].shape)
    field["start"][:] = random.random(field["start"].shape) < 0.2
    if "recurrent" in settings:
        field["recurrent_state"][:] = random.normal(size=field["recurrent_state"].shape)
    for view in (mailbox.actions, mailbox.values, *mailbox.declared.values()):
        view[:] = 9
    policy = Policy(plan.network, torch.device("cpu"), "fp32", BATCH, explore_seed=5)
    policy.load(3 * initial_parameters(plan.network, 1))

    envs, ticks = np.arange(BATCH, 2 * BATCH), np.repeat([7, 12], LANE_ENVS)
    rows, mask = memory.ring.stack_rows(envs, ticks)
    state = memory.ring.recurrent_state(envs, ticks) if "recurrent" in settings else None
    values = policy.values_from_rows(memory.ring.planes, rows, mask, envs % BATCH, (envs, ticks), state)
    expected: dict[str, np.ndarray] = {"actions": values.argmax(1), "values": values}
    if "method" in settings:
        actions, log_prob = sample(values, plan.config.run.seed, envs, ticks)
        expected = {"actions": actions, "values": probabilities(values), "log_prob": log_prob}
    if "recurrent" in settings:
        expected["recurrent_state"] = policy.next_state
    assert len(set(expected["actions"].tolist())) > 1
    inputs = policy._host.numpy().copy()
    policy._host_state.zero_()

    lanes, asked = np.array(asking), np.isin(envs // LANE_ENVS, asking)
    numbers = np.array([request_number(0, tick) for tick in ticks[asked][::LANE_ENVS].tolist()])
    assert Answers(memory, policy).answer(lanes, numbers) == asked.sum()
    found = {"actions": mailbox.actions, "values": mailbox.values, **mailbox.declared}
    for name, each in expected.items():
        np.testing.assert_array_equal(found[name][lanes].reshape(-1, *each.shape[1:]), each[asked], name)
        assert (np.delete(found[name], lanes, 0) == 9).all(), "other lanes hear nothing"
    np.testing.assert_array_equal(policy._host.numpy(), inputs, "every env has its row, whichever lanes ask")
    memory.arena.close()
