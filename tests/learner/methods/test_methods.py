"""Methods: values, losses, priorities and gradients against slow float64 forms, differentiated by PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learner.losses.method import LossOutput, NextState, ValueMethod, make_method
from learner.methods import c51
from shared.config.sections import Algorithm
from shared.errors import ConfigError
from shared.network_spec import Network
from tests.support.played_ring import make_algorithm

CPU = torch.device("cpu")
N, A, K = 40, 4, 4
V_MIN, V_MAX, ATOMS = -3.0, 3.0, 7
SUPPORT = [V_MIN + (V_MAX - V_MIN) * i / (ATOMS - 1) for i in range(ATOMS)]


def _method(name: str, **algorithm: object) -> ValueMethod:
    atoms = {"c51": ATOMS, "qr-dqn": 5}.get(name, 1)
    settings = make_algorithm(method=name, prioritized=True, **algorithm)
    made = make_method(Network("small", A, name, atoms, V_MIN, V_MAX, fractions=K), settings, CPU)
    assert isinstance(made, ValueMethod)
    return made


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _actions() -> list[int]:
    return [i * 3 % A for i in range(N)]


def _learn(method: ValueMethod, outputs: Tensor, target: Tensor, fractions: Tensor | None = None) -> LossOutput:
    """As the engine does: under inference mode, with buffers that were made before."""
    chosen = torch.eye(A)[_actions()]
    with torch.inference_mode():
        return method.loss_and_gradient(outputs, chosen, target, fractions)


def _check(learned: LossOutput, outputs: Tensor, loss_of: Callable[[int, Tensor], Tensor]) -> None:
    """Compare with `loss_of(i, float64 outputs of the action of transition i)`, one by one."""
    leaf = outputs.double().requires_grad_()
    losses = torch.stack([loss_of(i, leaf[i, action]) for i, action in enumerate(_actions())])
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    torch.testing.assert_close(learned.loss.double(), losses.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learned.gradient.double(), gradient, rtol=1e-4, atol=1e-5)
    assert learned.gradient.shape == outputs.shape
    assert learned.gradient.dtype == learned.loss.dtype == learned.priority.dtype == torch.float32


def _huber(u: Tensor) -> Tensor:
    return u * u / 2 if abs(u) <= 1 else abs(u) - 0.5


def test_dqn_learns_the_mean_with_a_clipped_error() -> None:
    outputs, target = _values(N, A, 1, scale=2.0), _values(N, seed=1)
    learned = _learn(_method("dqn"), outputs, target)
    _check(learned, outputs, lambda i, chosen: _huber(chosen[0] - target[i].double()))
    errors = [abs(outputs[i, action, 0] - target[i]).item() for i, action in enumerate(_actions())]
    assert learned.priority.tolist() == pytest.approx(errors)
    assert min(errors) < 1 < max(errors), "both sides of the clip are tried"


def test_dqn_written_out_is_dqn_differentiated() -> None:
    outputs, target = _values(N, A, 1, scale=2.0), _values(N, seed=1)
    method = _method("dqn")
    written = _learn(method, outputs, target)
    differentiated = ValueMethod.loss_and_gradient(method, outputs, torch.eye(A)[_actions()], target, None)
    for a, b in zip(written, differentiated, strict=True):
        torch.testing.assert_close(a, b)


def test_c51_learns_probabilities_by_cross_entropy() -> None:
    outputs = _values(N, A, ATOMS)
    target = _values(N, ATOMS, seed=1, scale=2.0).softmax(1)
    target[:5] = torch.eye(ATOMS)[:5]  # certain ones, of which the logarithm of 0 is part
    learned = _learn(_method("c51"), outputs, target)

    def loss_of(i: int, chosen: Tensor) -> Tensor:
        p = chosen.exp() / chosen.exp().sum()
        return -sum(target[i, j].double() * p[j].log() for j in range(ATOMS))  # type: ignore[return-value]

    _check(learned, outputs, loss_of)
    for i, action in enumerate(_actions()):
        p = outputs[i, action].double().softmax(0)
        pairs = zip(target[i].tolist(), p.tolist(), strict=True)
        divergence = sum(m * math.log(m / q) for m, q in pairs if m > 0)
        assert learned.priority[i].item() == pytest.approx(divergence, abs=1e-5)
    assert (learned.priority >= 0).all()


def test_c51_has_no_priority_where_nothing_is_to_be_learned() -> None:
    outputs = _values(N, A, ATOMS)
    target = outputs[range(N), _actions()].softmax(1)
    learned = _learn(_method("c51"), outputs, target)
    assert learned.priority.max() < 1e-6
    assert (learned.priority >= 0).all()
    assert learned.gradient.abs().max() < 1e-6


def _quantile_loss(chosen: Tensor, tau: list[float], target: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for theta, fraction in zip(chosen, tau, strict=True):
        for y in target.double():
            u = y - theta
            total = total + abs(fraction - (1.0 if u < 0 else 0.0)) * _huber(u) / len(target)
    return total


def _check_quantile_priority(learned: LossOutput, outputs: Tensor, target: Tensor) -> None:
    for i, action in enumerate(_actions()):
        sizes = [abs(float(y) - float(theta)) for y in target[i] for theta in outputs[i, action]]
        assert learned.priority[i].item() == pytest.approx(sum(sizes) / len(target[i]), rel=1e-5)


def test_qr_dqn_learns_evenly_spaced_quantiles() -> None:
    outputs, target = _values(N, A, 5, scale=2.0), _values(N, 5, seed=1)
    learned = _learn(_method("qr-dqn"), outputs, target)
    _check(learned, outputs, lambda i, chosen: _quantile_loss(chosen, [0.1, 0.3, 0.5, 0.7, 0.9], target[i]))
    _check_quantile_priority(learned, outputs, target)


def test_iqn_learns_the_quantiles_that_were_sampled() -> None:
    outputs, target = _values(N, A, 3, scale=2.0), _values(N, 6, seed=1)
    fractions = torch.rand(N, 3, generator=torch.Generator().manual_seed(2))
    learned = _learn(_method("iqn"), outputs, target, fractions)
    _check(learned, outputs, lambda i, chosen: _quantile_loss(chosen, fractions[i].double().tolist(), target[i]))
    _check_quantile_priority(learned, outputs, target)


def test_values_are_the_means_of_the_returns() -> None:
    logits = _values(N, A, ATOMS)
    expected = sum(z * p for z, p in zip(SUPPORT, logits.double().softmax(2).unbind(2), strict=True))
    torch.testing.assert_close(_method("c51").values(logits).double(), expected, rtol=1e-5, atol=1e-5)
    quantiles = _values(N, A, 5)
    for name in ("qr-dqn", "iqn"):
        torch.testing.assert_close(_method(name).values(quantiles), quantiles.mean(2))
    assert torch.equal(_method("dqn").values(quantiles[:, :, :1]), quantiles[:, :, 0])


def test_fractions_that_choose_are_evenly_spaced_with_room_for_those_that_learn() -> None:
    method = _method("iqn", iqn_samples=3)
    assert (method.samples, method.policy_samples) == (3, 4)
    assert method.policy_fractions(2, 3).tolist() == [[0.125, 0.375, 0.625, 0.875, 0.0, 0.0, 0.0]] * 2
    for name in ("dqn", "c51", "qr-dqn"):
        assert (_method(name).samples, _method(name).policy_fractions(2).shape) == (0, (2, 0))


def _next_state(outputs: Tensor, policy: Tensor, bonus: Tensor | None) -> NextState:
    discount = torch.tensor([0.97, 0.0]).repeat(N // 2)
    return NextState(outputs, policy, bonus, _values(N, seed=5), discount)


def test_targets_of_mixed_actions_are_their_means() -> None:
    policy, bonus = _values(N, A, seed=3).softmax(1), _values(N, A, seed=4)
    for name, atoms in (("dqn", 1), ("qr-dqn", 5), ("iqn", 6)):
        outputs = _values(N, A, atoms)
        next_state = _next_state(outputs, policy, bonus)
        y = _method(name).target(next_state).view(N, -1)
        for i in range(N):
            for j in range(atoms):
                soft = sum((policy[i, a] * (outputs[i, a, j] + bonus[i, a])).item() for a in range(A))
                wanted = next_state.reward[i].item() + next_state.discount[i].item() * soft
                assert y[i, j].item() == pytest.approx(wanted, abs=1e-5)
    assert _method("dqn").target(_next_state(_values(N, A, 1), policy, None)).shape == (N,)


def test_c51_projects_many_atoms_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    next_state = _next_state(_values(N, A, ATOMS), torch.eye(A)[_actions()], None)
    whole = _method("c51").target(next_state)
    monkeypatch.setattr(c51, "MOST_AT_ONCE", 3 * ATOMS**2)
    assert torch.equal(_method("c51").target(next_state), whole)


def test_c51_projects_the_distribution_of_the_chosen_action() -> None:
    """Bellemare et al. 2017, algorithm 1: the mass of every atom is shared between its new neighbors."""
    outputs = _values(N, A, ATOMS)
    next_state = _next_state(outputs, torch.eye(A)[_actions()], None)
    y = _method("c51").target(next_state)
    for i, action in enumerate(_actions()):
        expected = [0.0] * ATOMS
        for z, p in zip(SUPPORT, outputs[i, action].double().softmax(0).tolist(), strict=True):
            moved = min(V_MAX, max(V_MIN, next_state.reward[i].item() + next_state.discount[i].item() * z))
            place = (moved - V_MIN) / (V_MAX - V_MIN) * (ATOMS - 1)
            randint = min(int(place), ATOMS - 2)
            expected[randint] += p * (randint + 1 - place)
            expected[randint + 1] += p * (place - randint)
        assert y[i].tolist() == pytest.approx(expected, abs=1e-5)


def test_combinations_that_a_method_allows() -> None:
    assert [
        (_method(name).supports_soft_policy, _method(name).supports_value_rescaling)
        for name in ("dqn", "qr-dqn", "iqn", "c51")
    ] == [
        *[(True, True)] * 3,
        (False, False),
    ]


def test_a_method_that_is_not_here_is_a_sentence() -> None:
    """Weights may be of a method that somebody else has registered."""
    with pytest.raises(ConfigError, match="no method 'theirs' here: register it first"):
        make_method(Network("small", A, "theirs"), Algorithm(), CPU)


@pytest.mark.parametrize("name", ["posix", "__init__", "dqn.x", "qr_dqn"])
def test_only_names_of_methods_are_methods(name: str) -> None:
    with pytest.raises(ConfigError, match=f"There is no method '{name}' here"):
        make_method(Network("small", A, name), Algorithm(), CPU)


@pytest.mark.parametrize(("name", "value_output", "says"), [("dqn", True, "a value"), ("a2c", False, "no value")])
def test_a_network_with_another_head_than_the_method_declares_is_a_sentence(
    name: str, value_output: bool, says: str
) -> None:
    """A file of weights names both."""
    with pytest.raises(ConfigError, match=f"method {name} is declared with the head .* its network has {says} of"):
        make_method(Network("small", A, name, value_output=value_output), Algorithm(method=name), CPU)
