"""The LSTM against PyTorch's, in float64, with episodes that begin within a sequence; and recurrent models."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learner.networks import lstm
from learner.networks.arithmetic_check import check_arithmetic
from learner.networks.model import ExtraInputs, Recurrence
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from tests.learner.networks.test_modules import CPU, learn, make_reference, packed_model

SEQUENCES, TICKS, INPUTS, UNITS = 3, 7, 5, 4
RECURRENT = Network("small", 4, "a2c", value_output=True, recurrent=64)


def _recurrence(units: int = UNITS, dtype: torch.dtype = torch.float64) -> Recurrence:
    """The second sequence begins two episodes within it; the third begins one with its first tick."""
    generator = torch.Generator().manual_seed(0)
    start = torch.zeros(SEQUENCES, TICKS, dtype=dtype)
    start[1, 3] = start[1, 4] = start[2, 0] = 1
    return Recurrence(torch.randn(SEQUENCES, 2, units, generator=generator, dtype=dtype), start.flatten())


def _reference(module: Callable[..., Any], x: Tensor, recurrence: Recurrence) -> tuple[Tensor, Tensor]:
    """Outputs [n, units] and last states [m, 2, units] by PyTorch's LSTM, piece by piece between the starts."""
    outputs, states = [], []
    starts = recurrence.start.view(SEQUENCES, TICKS)
    for sequence, rows in enumerate(x.view(SEQUENCES, TICKS, -1)):
        state = recurrence.state[sequence]
        for t, row in enumerate(rows):
            if starts[sequence, t]:
                state = torch.zeros_like(state)
            answer, after = module(row[None, None], tuple(state[:, None, None]))
            state = torch.stack(after)[:, 0, 0]
            outputs.append(answer[0, 0])
        states.append(state)
    return torch.stack(outputs), torch.stack(states)


def test_outputs_and_gradients_are_those_of_pytorch() -> None:
    torch.manual_seed(1)
    module = nn.LSTM(INPUTS, UNITS, batch_first=True, dtype=torch.float64)
    x = torch.randn(SEQUENCES * TICKS, INPUTS, dtype=torch.float64, requires_grad=True)
    recurrence, weights = _recurrence(), lstm.Weights(*module.parameters())
    by_outputs = torch.randn(SEQUENCES * TICKS, UNITS, dtype=torch.float64)
    found, wanted = lstm.unroll(x, recurrence, weights), _reference(module, x, recurrence)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    leaves = [x, *module.parameters()]
    gradients, expected = (torch.autograd.grad((each[0] * by_outputs).sum(), leaves) for each in (found, wanted))
    assert min(each.abs().max() for each in expected) > 0.1
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(lstm.unroll(x, recurrence, weights)[0], found[0], rtol=0, atol=0)


# Models


def _blocks() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (SEQUENCES * TICKS, 21, 21, 64), generator=generator, dtype=torch.uint8)


def _passes(precision: str = "fp32") -> tuple[Tensor, Tensor, np.ndarray]:
    """Outputs, last states, and the gradient in canonical layout."""
    model = packed_model(RECURRENT, precision, initial_parameters(RECURRENT, 1, "torch"))
    recurrence = _recurrence(units=RECURRENT.recurrent, dtype=torch.float32)
    gradient = torch.randn(SEQUENCES * TICKS, 5, 1, generator=torch.Generator().manual_seed(2))
    saved, canonical = learn(model, _blocks(), ExtraInputs(recurrence=recurrence), gradient)
    return saved.outputs.detach(), saved.state.detach(), canonical


def _frames() -> Tensor:
    """The blocks [n, y, x, (frame, dy, dx)] as frames."""
    return _blocks().view(-1, 21, 21, 4, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape(-1, 4, 84, 84)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-4), ("bf16", 0.1)])
def test_a_recurrent_network_is_the_one_by_the_books(precision: str, tolerance: float) -> None:
    outputs, state, gradient = _passes(precision)
    reference = make_reference(RECURRENT, initial_parameters(RECURRENT, 1, "torch"))
    x = reference.hidden(reference.torso(_frames().double() / 255.0)).relu()
    recurrence = Recurrence(*(each.double() for each in _recurrence(units=64, dtype=torch.float32)))
    x, wanted_state = _reference(reference.lstm, x, recurrence)
    wanted = reference.heads(x)[:, :, None]
    (wanted * torch.randn(SEQUENCES * TICKS, 5, 1, generator=torch.Generator().manual_seed(2))).sum().backward()
    ours, theirs = (outputs.double(), state.double()), (wanted.detach(), wanted_state.detach())
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    found = parameters_of(RECURRENT).split(gradient)
    for name, parameter in reference.named_parameters():
        off = np.linalg.norm(found[name] - parameter.grad.numpy()) / np.linalg.norm(parameter.grad.numpy())
        assert off < 2 * tolerance, (name, off)


def test_acting_tick_by_tick_gives_the_outputs_of_the_unrolled_sequence() -> None:
    outputs, last, _ = _passes()
    recurrence = _recurrence(units=64, dtype=torch.float32)
    starts, state = recurrence.start.view(SEQUENCES, TICKS).numpy(), recurrence.state.numpy().copy()
    policy = Policy(RECURRENT, CPU, "fp32", batch=SEQUENCES)
    policy.load(initial_parameters(RECURRENT, 1, "torch"))
    frames = _frames().view(SEQUENCES, TICKS, 4, 84, 84)
    for t in range(TICKS):
        state[starts[:, t] == 1] = 0
        values = policy.values(frames[:, t].numpy(), state)
        state = policy.next_state
        wanted = outputs.view(SEQUENCES, TICKS, 5)[:, t].numpy()
        np.testing.assert_allclose(values, wanted[:, :4], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(policy.state_values, wanted[:, 4], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, last.numpy(), rtol=1e-4, atol=1e-5)


def test_a_plain_policy_has_an_empty_state() -> None:
    policy = Policy(replace(RECURRENT, recurrent=0), CPU, "fp32", batch=3)
    assert policy.fresh_state().shape == policy.next_state.shape == (3, 2, 0)


def test_the_check_of_the_arithmetic_takes_a_recurrent_network() -> None:
    check_arithmetic(RECURRENT, CPU, "bf16", 8, learns=True)
