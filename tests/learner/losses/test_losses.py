"""The pure functions where papers and rounding meet; tests of methods, targets and updates cover the rest of them."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from learner.losses.distributional_loss import categorical_projection, midpoints, quantile_huber
from learner.losses.scalar_loss import greedy_policy, rescale, soft_policy, unrescale
from shared.config.sections import Algorithm

Z = 11
SUPPORT = torch.linspace(-5, 5, Z, dtype=torch.float64)
EPSILON = 1e-3
"""Epsilon of the rescaling (Kapturowski et al. 2019, R2D2)."""


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def projected(p: list[float], reward: float, discount: float, support: list[float]) -> list[float]:
    """Bellemare et al. 2017, algorithm 1: each atom's mass is shared between its two neighbors."""
    low, dz = support[0], (support[-1] - support[0]) / (len(support) - 1)
    result = [0.0] * len(support)
    for mass, z in zip(p, support, strict=True):
        b = (min(support[-1], max(low, reward + discount * z)) - low) / dz
        below = min(int(b), len(support) - 2)
        result[below] += mass * (below + 1 - b)
        result[below + 1] += mass * (b - below)
    return result


def action_values(algorithm: Algorithm, outputs: Tensor, support: list[float]) -> list[Any]:
    """Q(s, .) of outputs [..., actions, atoms]: the means of the returns."""
    if algorithm.method == "c51":
        return (outputs.softmax(-1) * torch.tensor(support, dtype=outputs.dtype)).sum(-1).tolist()
    return outputs.mean(-1).tolist()


def _log_softmax(values: list[float], temperature: float) -> Tensor:
    return (torch.tensor(values, dtype=torch.float64) / temperature).log_softmax(0)


Floats = list[float]


def paper_target(
    algorithm: Algorithm, step: tuple[float, float, int], q: Floats, q_next: Floats, outputs: Tensor, support: Floats
) -> Floats:
    """Targets of the outputs of the action that was taken.

    Args:
        step: reward, discount and action.
        q: of the target network, in the state that was acted in.
        q_next: of the network that chooses, in the state that follows.
        outputs: [actions, atoms] of the target network there.
    """
    reward, discount, action = step
    best = q_next.index(max(q_next))
    if algorithm.method == "c51":  # Bellemare et al. 2017, algorithm 1
        return projected(outputs[best].softmax(0).tolist(), reward, discount, support)
    if not algorithm.munchausen:  # Mnih et al. 2015; Dabney et al. 2018a, algorithm 1; 2018b, algorithm 1
        return [reward + discount * theta for theta in outputs[best].tolist()]
    # Vieillard et al. 2020, equation 2, for every quantile; the logarithm is clipped as in their appendix.
    tau = algorithm.munchausen_temperature
    mine = min(0.0, max(algorithm.munchausen_floor, tau * _log_softmax(q, tau)[action].item()))
    log_p = _log_softmax(q_next, tau)[:, None]
    following = (log_p.exp() * (outputs.double() - tau * log_p)).sum(0)
    return (reward + algorithm.munchausen_alpha * mine + discount * following).tolist()


def quantile_loss(theta: Tensor, tau: list[float], target: Tensor) -> Tensor:
    """Dabney et al. 2018a, equation 10, and 2018b, equation 3, of one transition in float64."""
    total = torch.zeros((), dtype=torch.float64)
    for (each, fraction), y in product(zip(theta, tau, strict=True), target.double()):
        u = y - each
        total = total + abs(fraction - (1.0 if u < 0 else 0.0)) * huber(u) / len(target)
    return total


def huber(u: Tensor) -> Tensor:
    """Huber's loss of width 1."""
    return u * u / 2 if abs(u) <= 1 else abs(u) - 0.5


def test_greedy_takes_the_first_of_equal_actions() -> None:
    q = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 0.5]])
    assert greedy_policy(q).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_the_soft_policy_stays_exact_far_from_zero(shift: float) -> None:
    near = torch.tensor([[0.0, 0.03125, -500.0]])  # shifts of these lose no digit in float32
    log_pi, _ = soft_policy(near + shift, 0.03)
    assert torch.equal(log_pi, soft_policy(near, 0.03)[0])
    assert log_pi.isfinite().all()


def scaled(x: float) -> float:
    """Pohlen et al. 2018, h."""
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + EPSILON * x


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_rescaling_is_the_papers_and_turns_back(dtype: torch.dtype, tolerance: float) -> None:
    """Also near zero, where the formula as it stands loses digits."""
    x = torch.tensor([0.0, 1e-9, 1e-3, 0.1, 1.0, 7.5, 300.0, 5e4], dtype=dtype)
    x = torch.cat([-x, x])
    h = rescale(x, EPSILON)
    assert h.tolist() == pytest.approx([scaled(value) for value in x.tolist()], rel=1e-6, abs=1e-15)
    torch.testing.assert_close(unrescale(h, EPSILON), x, rtol=tolerance, atol=0)
    torch.testing.assert_close(rescale(unrescale(x, EPSILON), EPSILON), x, rtol=tolerance, atol=0)


def test_rescaling_reads_no_number() -> None:
    """A graph of a GPU can hold it: tensors of the meta device have none."""
    x = torch.empty(6, device="meta")
    assert unrescale(rescale(x, EPSILON), EPSILON).shape == x.shape


def test_projection_is_the_papers_algorithm() -> None:
    p, reward = _values(200, Z).softmax(-1), _values(200, seed=1, scale=3.0)
    discount = torch.tensor([0.99, 0.0, 0.99**3, 1.0], dtype=torch.float64).repeat(50)
    arguments = zip(p.tolist(), reward.tolist(), discount.tolist(), strict=True)
    expected = [projected(*row, SUPPORT.tolist()) for row in arguments]
    found = categorical_projection(p, reward, discount, SUPPORT)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_projection_loses_no_mass_in_float32() -> None:
    support = torch.linspace(-10, 10, 51)  # its atoms are not multiples of 0.4 in float32
    p, reward = _values(500, 51).softmax(-1).float(), _values(500, seed=1).float()
    mass = categorical_projection(p, reward, torch.full((500,), 0.99), support).sum(1)
    torch.testing.assert_close(mass, torch.ones(500), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])  # within the width of Huber's loss, about it, and beyond it
@pytest.mark.parametrize("sampled", [False, True])
def test_quantile_huber_is_the_papers_double_sum(scale: float, sampled: bool) -> None:
    """By the compiled loop of a CPU, and by the operations of a GPU, which a target with a gradient takes too."""
    theta, target = _values(8, 5, scale=scale).requires_grad_(), _values(8, 7, seed=1, scale=2.0 * scale)
    tau = torch.rand(8, 5, generator=torch.Generator().manual_seed(2)).double() if sampled else midpoints(5).double()
    rows = zip(theta, tau.expand(8, 5).tolist(), target, strict=True)
    expected = torch.stack([quantile_loss(*row) for row in rows])
    (by_theta,) = torch.autograd.grad(expected.sum(), theta)
    for each in (target, target.clone().requires_grad_()):
        found = quantile_huber(theta, tau, each)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), theta)[0], by_theta)
