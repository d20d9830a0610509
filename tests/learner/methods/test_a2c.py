"""A2C's gradient and targets against autograd and sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.losses.method import make_method
from learner.methods.a2c import A2C
from learner.rollout.on_policy_method import Rollout, StepBatch
from shared.config.method_declaration import ActorCriticSettings
from shared.config.settings import Algorithm
from shared.network_spec import Network

ACTIONS, N = 4, 12
CPU = torch.device("cpu")
SETTINGS = ActorCriticSettings(value_weight=0.7, entropy_weight=0.03, trace=0.9)


def _method() -> A2C:
    made = make_method(Network("small", ACTIONS, "a2c", value_output=True), Algorithm("a2c", SETTINGS), CPU)
    assert isinstance(made, A2C)
    return made


def _minibatch(weight: torch.Tensor) -> StepBatch:
    generator = torch.Generator().manual_seed(2)
    numbers = [torch.randn(N, generator=generator) for _ in range(3)]
    one_hot = torch.eye(ACTIONS)[torch.randint(0, ACTIONS, (N,), generator=generator)]
    return StepBatch(torch.zeros(N, 1), one_hot, *numbers, weight)


def _loss(outputs: torch.Tensor, minibatch: StepBatch) -> torch.Tensor:
    """The weighted mean loss, step by step."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(N):
        log_policy = outputs[i, :ACTIONS, 0].log_softmax(0)
        entropy = -(log_policy.exp() * log_policy).sum()
        error = outputs[i, ACTIONS, 0] - minibatch.value[i].double()
        log_prob = log_policy[int(minibatch.action_one_hot[i].argmax())]
        loss = -minibatch.advantage[i].double() * log_prob + 0.35 * error**2 - 0.03 * entropy
        total = total + minibatch.weight[i].double() * loss
    return total / minibatch.weight.double().sum().clamp(min=1.0)


@pytest.mark.parametrize("silent", [0, 3, N])
def test_the_gradient_is_that_of_autograd(silent: int) -> None:
    weight = torch.ones(N)
    weight[:silent] = 0.0
    minibatch = _minibatch(weight)
    outputs = torch.randn(N, ACTIONS + 1, 1, generator=torch.Generator().manual_seed(1))
    found = _method().learn(outputs, minibatch, sampled=True)
    leaf = outputs.double().requires_grad_()
    loss = _loss(leaf, minibatch)
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found.gradient.double(), expected, rtol=1e-5, atol=1e-7)
    assert found.metrics["loss"].double().mean().item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-7)


def test_targets_are_advantages_and_returns() -> None:
    random = np.random.default_rng(0)
    shape = 3, 2
    outputs = random.normal(size=(4, 2, ACTIONS + 1)).astype(np.float32)
    rollout = Rollout(
        reward=np.ones(shape, np.float32),
        terminal=np.array([[False, False], [False, True], [False, False]]),
        ended=np.array([[False, False], [False, True], [False, False]]),
        valid=np.array([[True, True], [True, True], [True, False]]),
        action=np.zeros(shape, np.int64),
        log_prob=np.zeros(shape, np.float32),
        outputs=outputs,
        discount=0.5,
    )
    targets = _method().targets(rollout)
    values = outputs[:, :, -1].astype(np.float64)
    errors = 1 + 0.5 * values[1:] - values[:-1]
    errors[1, 1] = 1 - values[1, 1]
    first = errors[:, 0]
    expected = [first[0] + 0.45 * (first[1] + 0.45 * first[2]), first[1] + 0.45 * first[2], first[2]]
    np.testing.assert_allclose(targets.advantage[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(
        targets.advantage[:, 1], [errors[0, 1] + 0.45 * errors[1, 1], errors[1, 1], 0], rtol=1e-6
    )
    np.testing.assert_allclose(targets.value, targets.advantage + outputs[:-1, :, -1], rtol=1e-6)
    assert targets.weight.tolist() == [[1, 1], [1, 1], [1, 0]]
