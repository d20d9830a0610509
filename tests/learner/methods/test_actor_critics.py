"""Gradients of the actor-critics against autograd in float64, their metrics, and their targets."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.losses.method import make_method
from learner.methods.vtrace import importance_ratio
from learner.rollout.actor_critic import EvaluatedSteps, explained_variance
from learner.rollout.advantages import generalized_advantages, v_trace
from learner.rollout.on_policy_method import StepBatch
from shared.config.method_declaration import VTraceSettings
from shared.config.settings import Config
from shared.network_spec import Network
from tests.support.random_rollout import random_rollout

ACTIONS, N = 4, 64
WEIGHTS = {"value_weight": 0.7, "entropy_weight": 0.03}
CASES: dict[str, dict[str, Any]] = {
    "a2c": {"method": "a2c"},
    "a3c": {"method": "a3c", "rho_max": 1.5},
    "vtrace": {"method": "vtrace"},
    "ppo": {"method": "ppo", "clip_ratio": 0.25},
    "ppo without options": {"method": "ppo", "clip_ratio": 0.3, "clip_value": False, "normalize_advantage": False},
}


def _method(**settings: Any) -> Any:
    algorithm = Config().with_settings(**settings).algorithm
    return make_method(Network("small", ACTIONS, algorithm.method, value_output=True), algorithm, torch.device("cpu"))


def _minibatch(silent: int = 3) -> StepBatch:
    """Random numbers; the first steps have no action."""
    generator = torch.Generator().manual_seed(2)
    taken = torch.eye(ACTIONS)[torch.randint(0, ACTIONS, (N,), generator=generator)]
    log_prob, advantage, returns, old_value = (torch.randn(N, generator=generator) for _ in range(4))
    numbers = {"log_prob": -1.5 + 0.5 * log_prob, "advantage": advantage + 0.5, "returns": returns}
    numbers |= {"weight": (torch.arange(N) >= silent).float(), "old_value": 0.5 * old_value}
    return StepBatch(torch.zeros(N, 1), taken, **numbers)


def _outputs() -> Tensor:
    return torch.randn(N, ACTIONS + 1, 1, generator=torch.Generator().manual_seed(1))


def _losses(outputs: Tensor, batch: StepBatch, case: dict[str, Any]) -> Tensor:
    """Loss of each step as the papers write it, float64[N]."""
    batch = StepBatch(*(each.double() for each in batch if each is not None))
    log_policy = outputs[:, :ACTIONS, 0].log_softmax(1)
    value, log_prob = outputs[:, ACTIONS, 0], log_policy[torch.arange(N), batch.action_one_hot.argmax(1)]
    ratio = (log_prob - batch.log_prob).exp()
    policy, critic = -batch.advantage * log_prob, (value - batch.returns) ** 2 / 2
    if case["method"] == "a3c":
        policy = -(ratio.clamp(max=case["rho_max"]) * (batch.returns - value)).detach() * log_prob
    if case["method"] == "ppo":
        clip, advantage = case["clip_ratio"], batch.advantage
        if case.get("normalize_advantage", True):
            counted = advantage[batch.weight > 0]
            advantage = (advantage - counted.mean()) / (counted.std() + 1e-8) if len(counted) else 0 * advantage
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))
        if case.get("clip_value", True):
            clipped = batch.old_value + (value - batch.old_value).clamp(-clip, clip)
            critic = torch.max(critic, (clipped - batch.returns) ** 2 / 2)
    entropy = -(log_policy.exp() * log_policy).sum(1)
    return policy + WEIGHTS["value_weight"] * critic - WEIGHTS["entropy_weight"] * entropy


@pytest.mark.parametrize("silent", [0, 3, N])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_gradient_is_that_of_autograd(case: dict[str, Any], silent: int) -> None:
    batch, outputs, method = _minibatch(silent), _outputs(), _method(**WEIGHTS, **case)
    found = method.learn(outputs, batch, costly_metrics=True)
    leaf = outputs.double().requires_grad_()
    weighted = (_losses(leaf, batch, case) * batch.weight.double()).sum()
    mean = weighted / max(1, N - silent)
    summed = case["method"] == "vtrace"
    assert method.mean_gradient is not summed, "the optimizer's scale follows from it"
    (expected,) = torch.autograd.grad(weighted if summed else mean, leaf)
    assert silent == N or expected.abs().sum() > 0.1
    torch.testing.assert_close(found.gradient.double(), expected, rtol=1e-5, atol=1e-6)
    assert found.metrics["loss"].double().mean().item() == pytest.approx(mean.item(), rel=1e-5, abs=1e-6)


def test_clipping_acts_on_some_steps_and_not_on_others() -> None:
    """The cases of PPO above hold steps on both sides of each bound."""
    batch, outputs = _minibatch(0), _outputs()
    methods = [_method(**CASES["ppo"], clip_value=each) for each in (True, False)]
    clipped, plain = (method.learn(outputs, batch, costly_metrics=True) for method in methods)
    assert 5 < (clipped.gradient[:, -1] != plain.gradient[:, -1]).sum() < N - 5
    assert 5 < (clipped.gradient[:, :-1, 0].abs().sum(1) < 1e-3).sum() < N - 5
    assert 0.1 < clipped.metrics["clip_fraction"].mean() < 0.9


def test_values_within_the_clip_have_the_gradient_of_autograd() -> None:
    """By CleanRL's formula in float32: the clipped value may be rounded, which must not cost the gradient."""
    n = 20_000
    old, value, returns = 0.1 * torch.randn(3, n, generator=torch.Generator().manual_seed(3))
    clip = 0.1
    value.requires_grad_()
    clipped = old + torch.clamp(value - old, -clip, clip)
    loss = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2)
    (expected,) = torch.autograd.grad(loss.sum(), value)
    zeros = torch.zeros(n)
    batch = _minibatch()._replace(old_value=old, returns=returns)
    now = EvaluatedSteps(log_prob=zeros, log_ratio=zeros, ratio=zeros, value=value.detach())
    found = _method(method="ppo", clip_ratio=clip).value_loss(now, batch)
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.gradient, expected)


def test_annealed_settings_have_the_values_of_the_round() -> None:
    annealed = _method(method="ppo", entropy_weight=0.03, entropy_weight_end=0.01, clip_ratio=0.3, clip_ratio_end=0.1)
    annealed.anneal(lambda start, end: start if end is None else (start + end) / 2)
    batch, outputs = _minibatch(), _outputs()
    found = annealed.learn(outputs, batch, costly_metrics=False)
    expected = _method(method="ppo", entropy_weight=0.02, clip_ratio=0.2).learn(outputs, batch, costly_metrics=False)
    torch.testing.assert_close(found.gradient, expected.gradient)
    torch.testing.assert_close(found.metrics["clip_fraction"], expected.metrics["clip_fraction"])


def test_metrics_are_means_over_the_steps_with_an_action() -> None:
    batch, outputs = _minibatch(5), _outputs()
    metrics = _method(method="ppo", clip_ratio=0.3).learn(outputs, batch, costly_metrics=True).metrics
    assert "explained_variance" not in _method(method="ppo").learn(outputs, batch, costly_metrics=False).metrics
    log_policy = outputs[5:, :ACTIONS, 0].double().log_softmax(1)
    ratio = ((log_policy * batch.action_one_hot[5:]).sum(1) - batch.log_prob[5:]).exp()
    returns, left = batch.returns[5:].double(), (batch.returns - batch.old_value)[5:].double()
    expected = {
        "mean_value": outputs[5:, ACTIONS, 0].double().mean(),
        "entropy": -(log_policy.exp() * log_policy).sum(1).mean(),
        "kl": (ratio - 1 - ratio.log()).mean(),
        "clip_fraction": ((ratio - 1).abs() > 0.3).double().mean(),
        "explained_variance": 1 - left.var() / returns.var(),
    }
    for name, value in expected.items():
        assert metrics[name].double().mean().item() == pytest.approx(value.item(), rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize(("old", "expected"), [("right", 1.0), ("constant", 0.0), ("wrong", -1.0)])
def test_explained_variance_is_1_of_perfect_values_and_0_of_constant_ones(old: str, expected: float) -> None:
    batch = _minibatch()
    values = {"right": batch.returns + 2.0, "constant": 0 * batch.returns, "wrong": -9 * batch.returns}
    assert explained_variance(batch._replace(old_value=values[old])).item() == pytest.approx(expected, abs=1e-6)
    for constant in (0.0, 0.1, 0.3, -0.9, 2.7):
        assert explained_variance(batch._replace(returns=torch.full_like(batch.returns, constant))) == 0.0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ratios_without_bound_stay_finite(case: dict[str, Any]) -> None:
    batch = _minibatch()._replace(log_prob=torch.full((N,), -500.0))
    found = _method(**case).learn(100 * _outputs(), batch, costly_metrics=True)
    assert found.gradient.isfinite().all()
    assert all(metric.isfinite().all() for metric in found.metrics.values())


def test_targets_are_advantages_and_returns() -> None:
    rollout = random_rollout(np.random.default_rng(0), outputs=ACTIONS + 1)
    targets, values = _method(method="ppo", trace=0.9).targets(rollout), rollout.outputs[:, :, -1]
    expected = generalized_advantages(rollout, values, 0.9)
    np.testing.assert_allclose(targets.advantage, expected, rtol=1e-6)
    np.testing.assert_allclose(targets.returns, expected + values[:-1], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(targets.old_value, values[:-1])
    np.testing.assert_array_equal(targets.weight, rollout.valid)


def test_returns_of_a3c_end_after_some_steps() -> None:
    rollout = random_rollout(np.random.default_rng(0), ticks=10, outputs=ACTIONS + 1)
    targets = _method(method="a3c", return_steps=4).targets(rollout)
    for first, end in ((0, 4), (4, 8), (8, 10)):
        names = ("reward", "terminal", "ended", "valid", "action", "log_prob")
        part = {name: getattr(rollout, name)[first:end] for name in names}
        alone = rollout._replace(outputs=rollout.outputs[first : end + 1], **part)
        np.testing.assert_array_equal(targets.returns[first:end], _method(method="a2c").targets(alone).returns)
    whole = _method(method="a2c").targets(rollout)
    assert not np.allclose(targets.returns, whole.returns)
    np.testing.assert_array_equal(_method(method="a3c", return_steps=10).targets(rollout).returns, whole.returns)


def test_v_trace_weighs_by_the_policy_of_the_beginning_of_the_round() -> None:
    rollout = random_rollout(np.random.default_rng(0), outputs=ACTIONS + 1)
    targets = _method(method="vtrace", trace=0.9, rho_max=1.2, c_max=0.8).targets(rollout)
    log_policy = torch.from_numpy(rollout.outputs[:-1, :, :-1]).double().log_softmax(2).numpy()
    taken = np.take_along_axis(log_policy, rollout.action[:, :, None], 2)[:, :, 0]
    ratio = np.exp(taken - rollout.log_prob)
    np.testing.assert_allclose(importance_ratio(rollout), ratio, rtol=1e-9)
    settings = VTraceSettings(trace=0.9, rho_max=1.2, c_max=0.8)
    returns, advantage = v_trace(rollout, rollout.outputs[:, :, -1], ratio, settings)
    np.testing.assert_allclose(targets.returns, returns, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(targets.advantage, advantage, rtol=1e-5, atol=1e-6)
