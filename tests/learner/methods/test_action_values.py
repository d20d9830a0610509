"""Loss of action values against autograd; targets of PQN and of workers' methods against their definitions."""

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


def _method(name: str, **settings: object) -> ActionValues:
    algorithm = Config().with_settings(method=name, **settings).algorithm
    return make_method(Network("small", ACTIONS, name), algorithm, torch.device("cpu"))  # type: ignore[return-value]


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("silent", [0, 3, N])
def test_the_gradient_is_that_of_the_mean_or_of_the_sum(silent: int, *, mean: bool) -> None:
    """By autograd; the first steps have no action."""
    generator, method = torch.Generator().manual_seed(2), _method("pqn")
    method.mean_gradient = mean
    taken = torch.randint(0, ACTIONS, (N,), generator=generator)
    numbers = {name: torch.randn(N, generator=generator) for name in StepBatch._fields[2:]}
    numbers["weight"] = (torch.arange(N) >= silent).float()
    batch = StepBatch(torch.zeros(N, 1), torch.eye(ACTIONS)[taken], **numbers)
    outputs = torch.randn(N, ACTIONS, 1, generator=generator)
    found = method.learn(outputs, batch, costly_metrics=True)
    leaf, count = outputs.double().requires_grad_(), max(1, N - silent)
    errors = leaf[torch.arange(N), taken, 0] - batch.returns.double()
    loss = (errors**2 / 2 * batch.weight.double()).sum()
    (expected,) = torch.autograd.grad(loss / count if mean else loss, leaf)
    torch.testing.assert_close(found.gradient.double(), expected, rtol=1e-5, atol=1e-7)
    best = outputs[:, :, 0].amax(1).double()
    means = {"loss": loss / count, "mean_q": best[silent:].sum() / count, "q_spread": best.std(correction=0)}
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
    targets, valid = _method("pqn", trace=trace).targets(rollout), rollout.valid
    np.testing.assert_allclose(targets.returns[valid], expected[:-1][valid], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(targets.weight, valid)
    taken = np.take_along_axis(rollout.outputs[:-1], rollout.action[:, :, None], 2)[:, :, 0]
    np.testing.assert_array_equal(targets.old_value, taken)
    np.testing.assert_allclose(targets.advantage, targets.returns - taken, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("name", ["n-step-q", "one-step-q", "sarsa"])
def test_targets_of_workers_are_returns_that_the_target_network_bootstraps(name: str) -> None:
    random = np.random.default_rng(4)
    rollout = random_rollout(random, outputs=ACTIONS)
    target_outputs = random.normal(size=rollout.outputs.shape).astype(np.float32)
    rollout = rollout._replace(target_outputs=target_outputs, next_action=random.integers(0, ACTIONS, 50))
    found = _method(name).targets(rollout)
    for first, env in np.argwhere(rollout.valid):
        assert found.returns[first, env] == pytest.approx(_return(name, rollout, first, env), rel=1e-5, abs=1e-5)
    np.testing.assert_array_equal(found.weight, rollout.valid)
