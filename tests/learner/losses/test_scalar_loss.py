"""The losses against their textbook forms, written slowly in float64, and their gradients against differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learner.losses.scalar_loss import (
    bellman_target,
    clipped_error,
    greedy_policy,
    importance_weights,
    munchausen_reward,
    rescale,
    select,
    soft_policy,
    unrescale,
)

TAU = 0.03
EPS = 0.001


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _one_hot(actions: list[int], count: int) -> Tensor:
    return torch.eye(count, dtype=torch.float64)[actions]


def _check_gradient(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(function, [value.clone().requires_grad_() for value in inputs])


def test_clipped_error_is_huber_and_its_gradient() -> None:
    q = torch.linspace(-4, 4, 81, dtype=torch.float64, requires_grad=True)
    y = torch.full_like(q, 0.3)
    loss, gradient = clipped_error(q, y)
    expected = torch.nn.functional.huber_loss(q, y, reduction="none", delta=1.0)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), q)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_target_ends_where_the_discount_is_zero() -> None:
    y = bellman_target(torch.tensor([1.0, -1.0]), torch.tensor([0.0, 0.5]), torch.tensor([9.0, 4.0]))
    assert y.tolist() == [1.0, 1.0]


def test_greedy_takes_the_first_of_equal_actions() -> None:
    q = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 0.5]])
    assert greedy_policy(q).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("rest", [(), (5,), (5, 2)])
def test_select_is_indexing(rest: tuple[int, ...]) -> None:
    values, actions = _values(6, 4, *rest), [3, 0, 0, 2, 1, 3]
    assert torch.equal(select(values, _one_hot(actions, 4)), values[range(6), actions])


@pytest.mark.parametrize("temperature", [TAU, 1.0, 10.0])
def test_soft_policy_is_the_softmax(temperature: float) -> None:
    q = _values(7, 5)
    log_pi, pi = soft_policy(q, temperature)
    for row, log_row, pi_row in zip(q.tolist(), log_pi.tolist(), pi.tolist(), strict=True):
        weights = [math.exp(value / temperature) for value in row]
        assert pi_row == pytest.approx([weight / sum(weights) for weight in weights])
        assert log_row == pytest.approx([math.log(weight / sum(weights)) for weight in weights])
    _check_gradient(lambda values: soft_policy(values, temperature)[0], q)
    _check_gradient(lambda values: soft_policy(values, temperature)[1], q)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_the_soft_policy_stays_exact_far_from_zero(shift: float) -> None:
    near = torch.tensor([[0.0, 0.03125, -500.0]])  # shifts of these lose no digit in float32
    far = near + shift
    assert torch.equal(soft_policy(far, TAU)[0], soft_policy(near, TAU)[0])
    assert soft_policy(far, TAU)[0].isfinite().all()


def test_munchausen_reward_is_the_scaled_and_clipped_log_policy() -> None:
    q, actions = _values(40, 4, scale=0.7), [i % 4 for i in range(40)]
    reward = munchausen_reward(q, _one_hot(actions, 4), alpha=0.9, temperature=TAU, lower=-1.0)
    clipped = 0
    for row, action, value in zip(q.tolist(), actions, reward.tolist(), strict=True):
        log_pi = row[action] / TAU - math.log(sum(math.exp(other / TAU) for other in row))
        assert value == pytest.approx(0.9 * min(0.0, max(-1.0, TAU * log_pi)), abs=1e-12)
        clipped += TAU * log_pi < -1.0
    assert 0 < clipped < 40, "both sides of the clip are tried"
    _check_gradient(
        lambda values: munchausen_reward(values, _one_hot(actions, 4), alpha=0.9, temperature=TAU, lower=-1.0), q
    )


def test_munchausen_reward_of_the_only_likely_action_is_nothing() -> None:
    q = torch.tensor([[100.0, 0.0], [100.0, 0.0]])
    reward = munchausen_reward(q, torch.eye(2), alpha=0.9, temperature=TAU, lower=-1.0)
    assert reward.tolist() == [0.0, pytest.approx(-0.9)]


@pytest.mark.parametrize("eps", [EPS, 0.01, 0.1])
def test_rescaling_is_the_papers_and_turns_back(eps: float) -> None:
    x = torch.tensor([0.0, 1e-9, 1e-3, 0.1, 1.0, 7.5, 300.0, 5e4], dtype=torch.float64)
    x = torch.cat([-x, x])
    h, inverse = rescale(x, eps), unrescale(x, eps)
    for value, forth, back in zip(x.tolist(), h.tolist(), inverse.tolist(), strict=True):
        size = abs(value)
        assert forth == pytest.approx(math.copysign(math.sqrt(size + 1) - 1, value) + eps * value, abs=1e-15)
        root = (math.sqrt(1 + 4 * eps * (size + 1 + eps)) - 1) / (2 * eps)
        assert back == pytest.approx(math.copysign(root * root - 1, value), abs=1e-9)
    torch.testing.assert_close(unrescale(h, eps), x, rtol=1e-13, atol=0)
    torch.testing.assert_close(rescale(inverse, eps), x, rtol=1e-13, atol=0)


def test_rescaling_turns_back_in_float32_near_zero_too() -> None:
    x = torch.tensor([0.0, 1e-6, -1e-3, 0.5, -21.0, 1e5])
    torch.testing.assert_close(unrescale(rescale(x, EPS), EPS), x, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("function", "slope"), [(rescale, 0.5 + EPS), (unrescale, 1 / (0.5 + EPS))])
def test_rescaling_has_its_gradient_at_zero(function: Callable[[Tensor, float], Tensor], slope: float) -> None:
    x = torch.zeros(1, requires_grad=True)
    function(x, EPS).backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(slope)
    _check_gradient(lambda values: function(values, EPS), _values(12, scale=5.0))


def test_importance_weights_are_the_papers() -> None:
    p = [0.001, 0.004, 0.25, 0.02]
    raw = [(1 / (1000 * value)) ** 0.4 for value in p]
    weights = importance_weights(torch.tensor(p, dtype=torch.float64), 0.4)
    assert weights.tolist() == pytest.approx([value / max(raw) for value in raw])


def test_importance_weights_of_equal_chances_or_without_correction_are_one() -> None:
    assert importance_weights(torch.full((5,), 1e-6), 1.0).tolist() == [1.0] * 5
    assert importance_weights(torch.tensor([1e-6, 0.5]), 0.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_function_looks_at_a_value(dtype: torch.dtype) -> None:
    """Tensors of the meta device have none: code that reads one, or takes a shape from one, fails."""
    q = torch.empty(6, 4, dtype=dtype, device="meta")
    one = q[:, 0]
    results = [
        bellman_target(one, one, one),
        *clipped_error(one, one),
        select(q, greedy_policy(q)),
        munchausen_reward(q, q, alpha=0.9, temperature=TAU, lower=-1.0),
        rescale(one, EPS),
        unrescale(one, EPS),
        importance_weights(one, 0.4),
    ]
    assert {(result.shape, result.dtype) for result in results} == {(torch.Size([6]), dtype)}
    assert {(result.shape, result.dtype) for result in soft_policy(q, TAU)} == {(q.shape, dtype)}
