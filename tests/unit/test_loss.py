"""The loss against its textbook form."""

from __future__ import annotations

import torch

from learner.loss import bellman_target, clipped_error


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
