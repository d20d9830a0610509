"""Methods: values, losses, priorities and gradients against slow float64 forms, differentiated by PyTorch."""

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
from tests.learner.losses.test_losses import huber, quantile_loss
from tests.support.played_ring import make_algorithm

CPU = torch.device("cpu")
N, A, K = 40, 4, 4
TAKEN = [i * 3 % A for i in range(N)]
"""Actions of the transitions."""
V_MIN, V_MAX, ATOMS = -3.0, 3.0, 7
SUPPORT = [V_MIN + (V_MAX - V_MIN) * i / (ATOMS - 1) for i in range(ATOMS)]


def _method(name: str, **algorithm: object) -> ValueMethod:
    atoms = {"c51": ATOMS, "qr-dqn": 5}.get(name, 1)
    settings = make_algorithm(method=name, prioritized=True, **algorithm)
    network = Network("small", A, name, atoms, V_MIN, V_MAX, fractions=K)
    return make_method(network, settings, CPU)  # type: ignore[return-value]


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _learn(method: ValueMethod, outputs: Tensor, target: Tensor, fractions: Tensor | None = None) -> LossOutput:
    """As the engine does: under inference mode, with buffers that were made before."""
    chosen = torch.eye(A)[TAKEN]
    with torch.inference_mode():
        return method.loss_and_gradient(outputs, chosen, target, fractions)


def _check(learned: LossOutput, outputs: Tensor, loss_of: Callable[[int, Tensor], Tensor]) -> None:
    """Compare with `loss_of(i, float64 outputs of the action of transition i)`, one by one."""
    leaf = outputs.double().requires_grad_()
    losses = torch.stack([loss_of(i, leaf[i, action]) for i, action in enumerate(TAKEN)])
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    torch.testing.assert_close(learned.loss.double(), losses.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learned.gradient.double(), gradient, rtol=1e-4, atol=1e-5)
    assert learned.gradient.shape == outputs.shape
    assert learned.gradient.dtype == learned.loss.dtype == learned.priority.dtype == torch.float32


def test_dqn_learns_the_mean_with_a_clipped_error() -> None:
    """By the gradient that is written out, and by the one of every method."""
    outputs, target, method = _values(N, A, 1, scale=2.0), _values(N, seed=1), _method("dqn")
    errors = [abs(outputs[i, action, 0] - target[i]).item() for i, action in enumerate(TAKEN)]
    assert min(errors) < 1 < max(errors), "both sides of the clip are tried"
    differentiated = ValueMethod.loss_and_gradient(method, outputs, torch.eye(A)[TAKEN], target, None)
    for learned in (_learn(method, outputs, target), differentiated):
        _check(learned, outputs, lambda i, chosen: huber(chosen[0] - target[i].double()))
        assert learned.priority.tolist() == pytest.approx(errors)


@pytest.mark.parametrize("priority", ["divergence", "cross-entropy"])
def test_c51_learns_probabilities_by_cross_entropy(priority: str) -> None:
    outputs = _values(N, A, ATOMS)
    target = _values(N, ATOMS, seed=1, scale=2.0).softmax(1)
    target[:5] = torch.eye(ATOMS)[:5]  # certain ones, of which the logarithm of 0 is part
    learned = _learn(_method("c51", c51_priority=priority), outputs, target)
    _check(learned, outputs, lambda i, chosen: -(target[i].double() * (chosen.exp() / chosen.exp().sum()).log()).sum())
    for i, action in enumerate(TAKEN):
        pairs = zip(target[i].tolist(), outputs[i, action].double().softmax(0).tolist(), strict=True)
        entropy = 1.0 if priority == "divergence" else 0.0  # the divergence leaves it out
        error = sum(m * (entropy * math.log(m) - math.log(q)) for m, q in pairs if m > 0)
        assert learned.priority[i].item() == pytest.approx(error, abs=1e-5)
    assert (learned.priority >= 0).all()


def test_c51_has_no_priority_where_nothing_is_to_be_learned() -> None:
    outputs = _values(N, A, ATOMS)
    learned = _learn(_method("c51"), outputs, outputs[range(N), TAKEN].softmax(1))
    assert learned.priority.max() < 1e-6
    assert (learned.priority >= 0).all()
    assert learned.gradient.abs().max() < 1e-6


@pytest.mark.parametrize(("name", "count"), [("qr-dqn", 5), ("iqn", 3)])
def test_quantiles_are_learned_at_even_or_sampled_fractions(name: str, count: int) -> None:
    outputs, target = _values(N, A, count, scale=2.0), _values(N, 6, seed=1)
    sampled = torch.rand(N, count, generator=torch.Generator().manual_seed(2)) if name == "iqn" else None
    learned = _learn(_method(name), outputs, target, sampled)
    tau = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]).expand(N, 5) if sampled is None else sampled
    _check(learned, outputs, lambda i, chosen: quantile_loss(chosen, tau[i].double().tolist(), target[i]))
    for i, action in enumerate(TAKEN):
        sizes = [abs(float(y) - float(theta)) for y in target[i] for theta in outputs[i, action]]
        assert learned.priority[i].item() == pytest.approx(sum(sizes) / len(target[i]), rel=1e-5)


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


def test_c51_projects_many_atoms_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    discount = torch.tensor([0.97, 0.0]).repeat(N // 2)
    next_state = NextState(_values(N, A, ATOMS), torch.eye(A)[TAKEN], None, _values(N, seed=5), discount)
    whole = _method("c51").target(next_state)
    monkeypatch.setattr(c51, "MOST_AT_ONCE", 3 * ATOMS**2)
    assert torch.equal(_method("c51").target(next_state), whole)


def test_combinations_that_a_method_allows() -> None:
    for name in ("dqn", "qr-dqn", "iqn", "c51"):
        method = _method(name)
        assert (method.supports_soft_policy, method.supports_value_rescaling) == ((name != "c51",) * 2)


@pytest.mark.parametrize("name", ["theirs", "posix", "__init__", "dqn.x", "qr_dqn"])
def test_only_names_of_methods_are_methods(name: str) -> None:
    """Weights may be of a method that somebody else has registered."""
    with pytest.raises(ConfigError, match=f"There is no method '{name}' here: register it first"):
        make_method(Network("small", A, name), Algorithm(), CPU)


@pytest.mark.parametrize(("name", "value", "says"), [("dqn", True, "a value"), ("a2c", False, "no value")])
def test_a_network_with_another_head_than_the_method_declares_is_a_sentence(name: str, value: bool, says: str) -> None:
    """A file of weights names both."""
    with pytest.raises(ConfigError, match=f"method {name} is declared with the head .* its network has {says} of"):
        make_method(Network("small", A, name, value_output=value), Algorithm(method=name), CPU)
