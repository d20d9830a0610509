"""PQN's gradient against autograd, and its targets against the definition of Q(lambda)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.losses.method import make_method
from learner.methods.pqn import PQN
from learner.rollout.on_policy_method import StepBatch
from shared.config.settings import Config
from shared.network_spec import Network
from tests.support.random_rollout import DISCOUNT, random_rollout

ACTIONS, N = 5, 16


def _method(trace: float = 0.65) -> PQN:
    algorithm = Config().with_settings(method="pqn", trace=trace).algorithm
    made = make_method(Network("small", ACTIONS, "pqn"), algorithm, torch.device("cpu"))
    assert isinstance(made, PQN)
    return made


@pytest.mark.parametrize("silent", [0, 3, N])
def test_the_gradient_is_that_of_autograd(silent: int) -> None:
    generator = torch.Generator().manual_seed(2)
    taken = torch.randint(0, ACTIONS, (N,), generator=generator)
    numbers = {name: torch.randn(N, generator=generator) for name in StepBatch._fields[2:]}
    numbers["weight"] = (torch.arange(N) >= silent).float()
    batch = StepBatch(torch.zeros(N, 1), torch.eye(ACTIONS)[taken], **numbers)
    outputs = torch.randn(N, ACTIONS, 1, generator=generator)
    found = _method().learn(outputs, batch, costly_metrics=True)
    leaf = outputs.double().requires_grad_()
    errors = leaf[torch.arange(N), taken, 0] - batch.returns.double()
    loss = (errors**2 / 2 * batch.weight.double()).sum() / max(1, N - silent)
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found.gradient.double(), expected, rtol=1e-5, atol=1e-7)
    best = outputs[:, :, 0].amax(1).double()
    means = {"loss": loss, "mean_q": best[silent:].sum() / max(1, N - silent), "q_spread": best.std(correction=0)}
    for name, value in means.items():
        assert found.metrics[name].double().mean().item() == pytest.approx(value.item(), rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("trace", [0.0, 0.65, 1.0])
def test_targets_are_those_of_q_lambda(trace: float) -> None:
    rollout = random_rollout(np.random.default_rng(3), outputs=ACTIONS)
    best, live = rollout.outputs.astype(np.float64).max(2), ~rollout.terminal
    expected = best.copy()  # after the round: the greedy value of the tick that opens the next one
    for t in reversed(range(len(rollout.reward))):
        mixed = trace * expected[t + 1] + (1 - trace) * best[t + 1]
        follows = np.where(rollout.ended[t], best[t + 1], mixed)
        expected[t] = rollout.reward[t] + DISCOUNT * live[t] * follows
    targets, valid = _method(trace).targets(rollout), rollout.valid
    np.testing.assert_allclose(targets.returns[valid], expected[:-1][valid], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(targets.weight, valid)
    taken = np.take_along_axis(rollout.outputs[:-1], rollout.action[:, :, None], 2)[:, :, 0]
    np.testing.assert_array_equal(targets.old_value, taken)
    np.testing.assert_allclose(targets.advantage, targets.returns - taken, rtol=1e-5, atol=1e-5)
