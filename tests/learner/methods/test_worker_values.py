"""Targets and loss of the action values that workers learn, against sums over each piece of an episode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.losses.method import make_method
from learner.rollout.action_values import ActionValues
from learner.rollout.on_policy_method import Rollout, StepBatch
from shared.config.settings import Config
from shared.network_spec import Network
from tests.support.random_rollout import DISCOUNT, random_rollout

ACTIONS, N = 5, 16
METHODS = ("n-step-q", "one-step-q", "sarsa")


def _method(name: str) -> ActionValues:
    algorithm = Config().with_settings(method=name).algorithm
    made = make_method(Network("small", ACTIONS, name), algorithm, torch.device("cpu"))
    assert isinstance(made, ActionValues)
    return made


def _rollout() -> Rollout:
    random = np.random.default_rng(4)
    rollout = random_rollout(random, outputs=ACTIONS)
    target_outputs = random.normal(size=rollout.outputs.shape).astype(np.float32)
    next_action = random.integers(0, ACTIONS, rollout.reward.shape[1])
    return rollout._replace(target_outputs=target_outputs, next_action=next_action)


def _return(name: str, rollout: Rollout, first: int, env: int) -> float:
    """Rewards up to an end, or of one step, and the target network's value of what follows (Mnih et al. 2016)."""
    total, t = 0.0, first
    while True:
        total += DISCOUNT ** (t - first) * float(rollout.reward[t, env])
        t += 1
        if rollout.ended[t - 1, env] or t == len(rollout.reward) or name != "n-step-q":
            break
    values = rollout.target_outputs[t, env]
    taken = rollout.next_action[env] if t == len(rollout.reward) else rollout.action[t, env]
    value = float(values[taken] if name == "sarsa" else values.max())
    return total + DISCOUNT ** (t - first) * (not rollout.terminal[t - 1, env]) * value


@pytest.mark.parametrize("name", METHODS)
def test_targets_are_returns_that_the_target_network_bootstraps(name: str) -> None:
    rollout = _rollout()
    found = _method(name).targets(rollout)
    for first, env in np.argwhere(rollout.valid):
        assert found.returns[first, env] == pytest.approx(_return(name, rollout, first, env), rel=1e-5, abs=1e-5)
    np.testing.assert_array_equal(found.weight, rollout.valid)


@pytest.mark.parametrize("mean", [True, False])
def test_the_gradient_is_that_of_the_mean_or_of_the_sum(*, mean: bool) -> None:
    method = _method("n-step-q")
    method.mean_gradient = mean
    generator = torch.Generator().manual_seed(2)
    taken = torch.randint(0, ACTIONS, (N,), generator=generator)
    numbers = {name: torch.randn(N, generator=generator) for name in StepBatch._fields[2:-1]}
    numbers["weight"] = (torch.arange(N) % 3 > 0).float()
    outputs = torch.randn(N, ACTIONS, 1, generator=generator)
    one_hot = torch.eye(ACTIONS)[taken]
    found = method.learn(outputs, StepBatch(torch.empty(0), one_hot, **numbers), costly_metrics=False)
    leaf = outputs.double().requires_grad_()
    losses = (leaf[torch.arange(N), taken, 0] - numbers["returns"].double()).square() / 2 * numbers["weight"].double()
    loss = losses.sum() / numbers["weight"].double().sum() if mean else losses.sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found.gradient.double(), gradient, rtol=1e-5, atol=1e-6)
