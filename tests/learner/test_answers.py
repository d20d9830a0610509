"""Answers to lanes: a part of a batch gets what the whole batch would, and the state of an LSTM with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from learner.answers import Answers
from learner.engine.initialization import initial_parameters
from learner.networks.policy import Policy
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.memory.parts.mailbox import request_number
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

LANES, LANE_ENVS, TICK = 4, 2, 7

pytestmark = pytest.mark.usefixtures("one_thread")


def _answered(lanes: list[int], settings: dict[str, object]) -> dict[str, np.ndarray]:
    """The mailboxes after an answer to `lanes` at tick 7, which share batches of two lanes; others are at 9."""
    shape: dict[str, object] = {
        "envs": LANES * LANE_ENVS,
        "lane_envs": LANE_ENVS,
        "network": "small",
        "inference_batch": 4,
        "actors": 1,
    }
    shape |= {"round_steps": 80, "snapshot_every_steps": 80, "total_steps": 800}
    config = Config().with_settings(**shape, device="cpu", precision="fp32", run_dir=Path("x"), **settings)
    memory = Memory.create(Plan(resolve(config), actions=4))
    random = np.random.default_rng(1)
    for name in ("frame", "recurrent_state", "start"):
        if (field := memory.ring.field.get(name)) is not None:
            some = {"frame": random.integers(0, 256, field.shape), "start": random.random(field.shape) < 0.2}
            field[:] = some.get(name, random.normal(size=field.shape))
    policy = Policy(memory.plan.network, torch.device("cpu"), "fp32", batch=4)
    policy.load(initial_parameters(memory.plan.network, 1))
    mailbox = memory.mailbox
    for field in (mailbox.actions, mailbox.values, *mailbox.declared.values()):
        field[:] = 9
    numbers = np.array([request_number(0, TICK) for _ in lanes])
    assert Answers(memory, policy).answer(np.array(lanes), numbers) == len(lanes) * LANE_ENVS
    found = {"actions": mailbox.actions, "values": mailbox.values, **mailbox.declared}
    kept = {name: field.copy() for name, field in found.items()}
    memory.arena.close()
    return kept


RECURRENT = {"method": "a2c", "batch_size": 80, "recurrent": True}


@pytest.mark.parametrize("settings", [{"replay_size": 400}, RECURRENT])
def test_a_part_of_a_batch_is_answered_as_the_whole(settings: dict[str, object]) -> None:
    whole = _answered([2, 3], settings)
    assert ("recurrent_state" in whole) == ("recurrent" in settings)
    for lane in (2, 3):
        part = _answered([lane], settings)
        for name, values in whole.items():
            np.testing.assert_array_equal(part[name][lane], values[lane], name)
            assert (np.delete(part[name], lane, 0) == 9).all(), "other lanes hear nothing"
            assert not np.array_equal(values[2], values[3]) or name == "actions"
