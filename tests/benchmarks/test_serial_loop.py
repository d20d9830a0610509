"""The serial loop of the ladder: what it plays against a slow loop, what it counts, what it refuses."""

from collections import deque
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from actors.make_env import make_env
from benchmarks.serial import Layers, Serial
from learner.learner import prepare
from learner.networks.policy import Policy
from ringside.command.train import configuration
from ringside.run import planning
from shared.errors import ConfigError
from shared.frame_shape import FRAME_SIDE, STACK
from shared.memory.plan import Plan
from shared.prng import Stream, randint, uniform

TICKS = 260
"""Random Breakout ends an episode in some 200."""


SMALL = "--game breakout --schedule alternate --envs 2 --lane-envs 1 --actors 1 --network small --device cpu \
--precision fp32 --learner-members 1 --train-every 4 --batch-size 8 --learning-starts 80 --total-steps 4_000 \
--round-steps 64 --snapshot-every-steps 64 --replay-size 2_000 --epsilon-start 0.3 --epsilon-end 0.3"


def make_plan(**settings: Any) -> Plan:
    return planning.check(configuration(SMALL.split()).with_settings(**settings))


@pytest.fixture(autouse=True)
def prepared() -> None:
    prepare(make_plan().config)


def looks(stacks: NDArray[np.uint8], actions: int) -> NDArray[np.int64]:
    """Actions that depend on every frame of a stack and on their order."""
    sums = stacks.reshape(len(stacks), STACK, -1).sum(axis=2, dtype=np.int64)
    return (sums @ np.array([1, 3, 7, 13])) % actions


def looking(actions: int) -> Mock:
    """A network whose best action is `looks`."""
    return Mock(values=lambda stacks: np.eye(actions, dtype=np.float32)[looks(stacks, actions)])


def slow(plan: Plan, index: int) -> Iterator[dict[str, Any]]:
    """Ticks of one env, by hand: frame, action, reward, whether it was acted in."""
    config = plan.config
    env = make_env(config.play, config.run.seed, index, training=True)
    blank = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)
    frame = blank.copy()
    env.reset(0, frame)
    stack = deque([blank] * (STACK - 1) + [frame.copy()], maxlen=STACK)
    ended = False
    for tick in range(TICKS):
        action = int(looks(np.stack(stack)[None], plan.actions)[0])
        if uniform(config.run.seed, Stream.EXPLORE, index, tick) < config.explore.epsilon_start:
            action = randint(plan.actions, config.run.seed, Stream.EXPLORE_ACTION, index, tick)
        seen, reward, acted = frame.copy(), 0.0, not ended
        if ended:
            env.reset(tick, frame)
            stack.extend([blank] * STACK)
            ended = False
        else:
            outcome = env.step(tick, action, frame)
            reward, ended = outcome.raw_reward, outcome.terminated or outcome.truncated
        stack.append(frame.copy())
        yield {"frame": seen, "action": action, "raw_reward": reward, "valid": acted}


def test_it_plays_what_a_slow_loop_plays() -> None:
    plan = make_plan()
    network = looking(plan.actions)
    serial = Serial(plan, network)
    while serial.round * serial.run_schedule.round_ticks < TICKS:
        serial.play_round()
    field = serial.memory.ring.field
    ended = 0
    for index in range(2):
        for tick, expected in enumerate(slow(plan, index)):
            held = {name: field[name][index, tick, 0] for name in expected}
            np.testing.assert_array_equal(held.pop("frame"), expected.pop("frame"), err_msg=f"env {index}, tick {tick}")
            if not expected["valid"]:  # what is asked for in the last frame is ignored
                held.pop("action"), expected.pop("action")
                ended += 1
            assert held == expected, (index, tick)
    assert ended
    assert network.load.call_count == 1 + serial.updates, "new parameters after each update, and none without"


def test_steps_and_updates_are_counted() -> None:
    serial = Serial(make_plan(), looking(4))
    for _ in range(40):
        serial.play_round()
    assert (serial.steps, serial.updates) == (160, (160 - 80) // 4)


@pytest.mark.parametrize("gradients", [False, True])
def test_layers_compute_what_the_network_of_a_run_computes(*, gradients: bool) -> None:
    plan = make_plan(network="nature")
    stacks = np.random.default_rng(0).integers(0, 256, (2, STACK, FRAME_SIDE, FRAME_SIDE), dtype=np.uint8)
    flat = np.random.default_rng(1).normal(0, 0.02, plan.parameters.count).astype(np.float32)
    layers, policy = Layers(plan, gradients=gradients), Policy(plan.network, torch.device("cpu"), "fp32", batch=2)
    layers.load(flat)
    policy.load(flat)
    np.testing.assert_allclose(layers.values(stacks), policy.values(stacks), rtol=1e-4, atol=1e-5)
    assert {parameter.requires_grad for parameter in layers.layers.parameters()} == {gradients}


@pytest.mark.parametrize("settings", [{"schedule": "concurrent"}, {"actors": 2}])
def test_another_order_is_refused(settings: dict[str, Any]) -> None:
    plan = make_plan(**settings)
    with pytest.raises(ConfigError, match="--schedule alternate"):
        Serial(plan, looking(plan.actions))
