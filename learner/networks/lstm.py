"""An LSTM over sequences in which episodes begin, with a backward pass written out.

PyTorch's LSTM cannot reset the state within a sequence, which happens wherever an episode begins. The products with the
inputs are computed for all ticks at once, and so are the gradients of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from learner.networks.model import Recurrence


class Weights(NamedTuple):
    """Parameters of an LSTM, gates in the order of PyTorch: input, forget, cell, output."""

    weight_ih: Tensor
    """[4 * units, inputs]."""
    weight_hh: Tensor
    """[4 * units, units]."""
    bias_ih: Tensor
    """[4 * units]."""
    bias_hh: Tensor
    """[4 * units]."""


class _Tick(NamedTuple):
    """Activations of one tick, [m, units] each."""

    before: Tensor
    """Output of the tick before, or zeros where an episode begins; likewise `cell_before`."""
    cell_before: Tensor
    gates: tuple[Tensor, ...]
    """Input, forget, cell and output gate."""
    cell_tanh: Tensor
    """tanh of the cell after the tick."""


def unroll(x: Tensor, recurrence: Recurrence, weights: Weights) -> tuple[Tensor, Tensor]:
    """Outputs [n, units] for inputs x [n, inputs], and the state [m, 2, units] after the last tick.

    Rows are m sequences one after the other, each by tick. The gradient ends with the state before the first tick
    (truncated backpropagation through time).
    """
    if torch.is_grad_enabled():
        return _Unroll.apply(x, recurrence, *weights)
    return _forward(x, weights, recurrence)[:2]


def _forward(x: Tensor, weights: Weights, recurrence: Recurrence) -> tuple[Tensor, Tensor, list[_Tick]]:
    state, sequences = recurrence.state, len(recurrence.state)
    bias = weights.bias_ih + weights.bias_hh
    inputs = torch.addmm(bias, x, weights.weight_ih.t()).view(sequences, -1, len(bias))
    keep = (1.0 - recurrence.start).view(sequences, -1, 1)
    output, cell = state[:, 0], state[:, 1]
    ticks, outputs = [], []
    for t in range(inputs.shape[1]):
        before, cell_before = output * keep[:, t], cell * keep[:, t]
        z = torch.addmm(inputs[:, t], before, weights.weight_hh.t()).view(sequences, 4, -1)
        gates = z[:, 0].sigmoid(), z[:, 1].sigmoid(), z[:, 2].tanh(), z[:, 3].sigmoid()
        cell = gates[1] * cell_before + gates[0] * gates[2]
        cell_tanh = cell.tanh()
        output = gates[3] * cell_tanh
        ticks.append(_Tick(before, cell_before, gates, cell_tanh))
        outputs.append(output)
    return torch.stack(outputs, 1).flatten(0, 1), torch.stack([output, cell], 1), ticks


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, recurrence: Recurrence, *weights: Tensor) -> tuple[Tensor, Tensor]:
        outputs, state, ctx.ticks = _forward(x, Weights(*weights), recurrence)
        ctx.x, ctx.weights, ctx.start = x, Weights(*weights), recurrence.start
        ctx.mark_non_differentiable(state)
        return outputs, state

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        by_gates = _gate_gradients(ctx.ticks, gradient, ctx.weights.weight_hh, ctx.start)
        before = torch.stack([tick.before for tick in ctx.ticks], 1).flatten(0, 1)
        by_bias = by_gates.sum(0)
        by_x = by_gates @ ctx.weights.weight_ih
        return by_x, None, by_gates.t() @ ctx.x, by_gates.t() @ before, by_bias, by_bias


def _gate_gradients(ticks: Sequence[_Tick], gradient: Tensor, w_hh: Tensor, start: Tensor) -> Tensor:
    """Gradient [n, 4 * units] by the sums that enter the gates, from that by the outputs [n, units]."""
    sequences = len(ticks[0].before)
    gradient, keep = gradient.view(sequences, len(ticks), -1), (1.0 - start).view(sequences, -1, 1)
    by_output, by_cell = torch.zeros_like(gradient[:, 0]), torch.zeros_like(gradient[:, 0])
    found = []
    for t in reversed(range(len(ticks))):
        tick = ticks[t]
        i, f, g, o = tick.gates
        by_output = gradient[:, t] + by_output
        by_cell = by_cell + by_output * o * (1.0 - tick.cell_tanh * tick.cell_tanh)
        by_input, by_forget = by_cell * g * i * (1.0 - i), by_cell * tick.cell_before * f * (1.0 - f)
        by_candidate, by_out = by_cell * i * (1.0 - g * g), by_output * tick.cell_tanh * o * (1.0 - o)
        by_gates = torch.cat([by_input, by_forget, by_candidate, by_out], 1)
        found.append(by_gates)
        by_output, by_cell = (by_gates @ w_hh) * keep[:, t], by_cell * f * keep[:, t]
    return torch.stack(found[::-1], 1).flatten(0, 1)
