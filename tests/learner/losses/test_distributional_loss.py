"""The distributional losses against their textbook forms, written slowly, and their gradients against differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learner.losses.distributional_loss import (
    categorical_projection,
    cross_entropy,
    expected_value,
    midpoints,
    quantile_huber,
)

Z = 11
SUPPORT = torch.linspace(-5, 5, Z, dtype=torch.float64)


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _probabilities(*shape: int, seed: int = 0) -> Tensor:
    return _values(*shape, seed=seed).softmax(-1)


def _check_gradient(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(function, [value.clone().requires_grad_() for value in inputs])


def _slow_projection(p: list[float], reward: float, discount: float, support: list[float]) -> list[float]:
    """Bellemare et al. 2017, algorithm 1: each atom's mass is shared between its two neighbors."""
    low, dz = support[0], (support[-1] - support[0]) / (len(support) - 1)
    result = [0.0] * len(support)
    for mass, z in zip(p, support, strict=True):
        b = (min(support[-1], max(low, reward + discount * z)) - low) / dz
        randint, above = math.floor(b), math.ceil(b)
        if randint == above:
            result[randint] += mass
        else:
            result[randint] += mass * (above - b)
            result[above] += mass * (b - randint)
    return result


def test_projection_is_the_papers_algorithm() -> None:
    p, reward = _probabilities(200, Z), _values(200, seed=1, scale=3.0)
    discount = torch.tensor([0.99, 0.0, 0.99**3, 1.0], dtype=torch.float64).repeat(50)
    projected = categorical_projection(p, reward, discount, SUPPORT)
    arguments = zip(p.tolist(), reward.tolist(), discount.tolist(), strict=True)
    expected = [_slow_projection(*row, SUPPORT.tolist()) for row in arguments]
    torch.testing.assert_close(projected, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(projected.sum(1), torch.ones(200, dtype=torch.float64))
    _check_gradient(lambda values: categorical_projection(values, reward[:4], discount[:4], SUPPORT), p[:4])


def test_projection_keeps_the_mean_of_what_lies_within_the_support() -> None:
    p, reward = _probabilities(30, Z), _values(30, seed=1, scale=0.1).clamp(-0.4, 0.4)
    discount = torch.full((30,), 0.9, dtype=torch.float64)
    mean = expected_value(categorical_projection(p, reward, discount, SUPPORT), SUPPORT)
    torch.testing.assert_close(mean, reward + discount * expected_value(p, SUPPORT))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [(2.0, {7: 1.0}), (2.25, {7: 0.75, 8: 0.25}), (-5.0, {0: 1.0}), (1e6, {10: 1.0}), (-1e6, {0: 1.0})],
)
def test_projection_of_an_end_is_the_reward_alone(reward: float, expected: dict[int, float]) -> None:
    nothing = torch.zeros(1, dtype=torch.float64)
    (projected,) = categorical_projection(_probabilities(1, Z), nothing + reward, nothing, SUPPORT)
    assert projected.tolist() == pytest.approx([expected.get(i, 0.0) for i in range(Z)])


def test_projection_loses_no_mass_in_float32() -> None:
    support = torch.linspace(-10, 10, 51)  # its atoms are not multiples of 0.4 in float32
    p, reward = _probabilities(500, 51).float(), _values(500, seed=1).float()
    mass = categorical_projection(p, reward, torch.full((500,), 0.99), support).sum(1)
    torch.testing.assert_close(mass, torch.ones(500), rtol=0, atol=1e-6)


def test_projection_onto_itself_changes_nothing() -> None:
    p = _probabilities(5, Z)
    projected = categorical_projection(p, torch.zeros(5).double(), torch.ones(5).double(), SUPPORT)
    torch.testing.assert_close(projected, p)


def test_cross_entropy_and_mean_are_their_sums() -> None:
    p, m = _probabilities(6, Z), _probabilities(6, Z, seed=1)
    expected = [
        -sum(b * math.log(a) for a, b in zip(*rows, strict=True)) for rows in zip(p.tolist(), m.tolist(), strict=True)
    ]
    assert cross_entropy(p.log(), m).tolist() == pytest.approx(expected)
    means = [sum(a * z for a, z in zip(row, SUPPORT.tolist(), strict=True)) for row in p.tolist()]
    assert expected_value(p, SUPPORT).tolist() == pytest.approx(means)
    assert expected_value(_probabilities(3, 4, Z), SUPPORT).shape == (3, 4)
    _check_gradient(lambda logits: cross_entropy(logits.log_softmax(1), m), _values(6, Z))
    _check_gradient(lambda values: expected_value(values, SUPPORT), p)


def test_midpoints_are_the_middles_of_equal_parts() -> None:
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    torch.testing.assert_close(midpoints(200).diff(), torch.full((199,), 0.005))
    assert midpoints(3, dtype=torch.float64).dtype == torch.float64
    with pytest.raises(ValueError, match="0 quantiles"):
        midpoints(0)


def _slow_quantile_huber(theta: list[float], tau: list[float], target: list[float]) -> float:
    total = 0.0
    for t, fraction in zip(theta, tau, strict=True):
        for y in target:
            u = y - t
            loss = u * u / 2 if abs(u) <= 1.0 else abs(u) - 0.5
            total += abs(fraction - (1.0 if u < 0 else 0.0)) * loss / len(target)
    return total


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])  # within the width of Huber's loss, about it, and beyond it
@pytest.mark.parametrize("sampled", [False, True])
def test_quantile_huber_is_the_papers_double_sum(scale: float, sampled: bool) -> None:
    theta, target = _values(8, 5, scale=scale), _values(8, 7, seed=1, scale=2.0 * scale)
    tau = torch.rand(8, 5, generator=torch.Generator().manual_seed(2)).double() if sampled else midpoints(5).double()
    rows = zip(theta.tolist(), tau.expand(8, 5).tolist(), target.tolist(), strict=True)
    expected = pytest.approx([_slow_quantile_huber(*row) for row in rows])
    # Where no gradient by the target is wanted, a compiled loop computes it.
    assert quantile_huber(theta, tau, target).tolist() == expected
    assert quantile_huber(theta, tau, target.clone().requires_grad_()).tolist() == expected
    _check_gradient(lambda a: quantile_huber(a, tau, target), theta)
    _check_gradient(lambda a, b: quantile_huber(a, tau, b), theta, target)


def test_quantiles_of_a_sample_are_where_the_loss_is_least() -> None:
    # 100 ... 800: the quantiles 1/8, 3/8, ... lie between 100 and 200, 300 and 400, ..., Huber's width 1 aside.
    sample = 100.0 * torch.arange(1.0, 9.0)[None]
    theta = torch.zeros(1, 4, requires_grad=True)
    for _ in range(400):
        (gradient,) = torch.autograd.grad(quantile_huber(theta, midpoints(4), sample).sum(), theta)
        theta = (theta - 10.0 * gradient).detach().requires_grad_()
    least = torch.tensor([100.0, 300.0, 500.0, 700.0])
    assert ((theta[0] > least - 10.0) & (theta[0] < least + 110.0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_function_looks_at_a_value(dtype: torch.dtype) -> None:
    """Tensors of the meta device have none: code that reads one, or takes a shape from one, fails."""
    p, theta = (torch.empty(6, size, dtype=dtype, device="meta") for size in (Z, 5))
    one, support = p[:, 0], p[0]
    results = {
        (6, Z): [categorical_projection(p, one, one, support)],
        (6,): [cross_entropy(p, p), expected_value(p, support)]
        + [quantile_huber(theta, tau, p) for tau in (theta, theta[0])],
    }
    for shape, group in results.items():
        assert {(tuple(result.shape), result.dtype) for result in group} == {(shape, dtype)}
