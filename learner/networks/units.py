"""Plain networks on a CPU: convolutions divided by rows, the hidden layer by units (Krizhevsky 2014, arXiv:1404.5997).

Convolutions have few parameters and much work: a member computes them for its rows. The hidden layer has most of the
parameters: a member computes its units for all rows, and alone has their gradient. So an update exchanges the features
of a batch, parts of their gradient, and gradients of the convolutions, but never one of all parameters.

One update has five waits; with `--double`, with `--clip-gradient` and at the beginning of a chunk it has one more each.
A member writes only its parts, and reads those of others behind a wait:

    forward:   own rows, convolutions -> features  |  own units -> hidden  |  outputs, the same by every member
    backward:  own units -> their part of the gradient by the features  |  sum of these parts for own rows,
               convolutions -> gradients  |  sum of these for own parameters, optimizer  |
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.engine.bf16 import sum_parts
from learner.engine.side_stream import SideStream
from learner.networks.divided import DividedModel, Group
from learner.networks.fused import FusedModel, features_of, relu_backward
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs, ForwardPass
from learner.team.team import Team


class UnitsModel(DividedModel):
    """A plain network whose minibatches are divided by rows and units; other passes are divided by rows."""

    _model: FusedModel

    def __init__(self, model: FusedModel, parts: int, team: Team) -> None:
        """Arguments as for `DividedModel`."""
        super().__init__(model, parts, team)
        self._buffers_for = cache(self._make_buffers)

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> ForwardPass:
        """The outputs for stacks (`Model.forward`)."""
        if not learns:
            return super().forward(blocks, stack_offset, extra_inputs)
        model, network = self._model, self.network
        features, hidden, _ = self._buffers_for(len(blocks))
        passes = list[tuple[Group, list[Tensor]]]()
        for group in self._groups(blocks, stack_offset, extra_inputs):
            passes.append((group, model.convolve(blocks[group.rows], stack_offset)))
            features[group.rows] = features_of(passes[-1][1][-1])
        self._team.sync()
        for part in self._own:
            units = self._units[0][part]
            hidden[:, units] = F.linear(features, model.hidden.weight[units], model.hidden.bias[units]).relu_()
        self._team.sync()
        outputs = F.linear(hidden, *model.output).view(-1, network.outputs, network.atoms)
        return ForwardPass(outputs, saved=passes)

    def backward(self, saved: ForwardPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`); a member writes those that its optimizer moves."""
        last = gradient.view(len(gradient), -1)
        features, hidden, by_features = self._buffers_for(len(gradient))
        for part in self._own:
            self._write_matrices(part, last, features, hidden, by_features[part])
        self._team.sync()
        for group, inputs in saved.saved:
            summed = by_features[:, group.rows].sum(0, dtype=torch.float32).to(features.dtype)
            self._model.write_convolutions(inputs, summed, group.parts, side_stream)
        self._team.sync()
        for part in self._own:
            sum_parts(self._gradients[:, self._cuts[part]], self._gradient[self._cuts[part]])

    def _write_matrices(self, part: int, last: Tensor, features: Tensor, hidden: Tensor, by_features: Tensor) -> None:
        """Gradients of the units and outputs of a part, and its part of the gradient by the features."""
        model, units, rows = self._model, self._units[0][part], self._units[1][part]
        into_hidden, into_output = self._layers
        by_units = relu_backward(last @ model.output.weight[:, units], hidden[:, units]).to(features.dtype)
        torch.mm(by_units, model.hidden.weight[units], out=by_features)
        write_gradient(by_units, features, Affine(*(each[units] for each in into_hidden)))
        if rows.stop > rows.start:
            write_gradient(last[:, rows], hidden, Affine(*(each[rows] for each in into_output)))

    def _make_buffers(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Shared memory for passes over n rows.

        Returns:
            features [n, features]; hidden float32[n, hidden]; the parts of the gradient by the features
            [P, n, features].
        """
        features, hidden = self.network.features, self.network.hidden
        by_features = self._zeros(len(self.parts), rows, features)
        return self._zeros(rows, features), self._team.zeros(rows, hidden), by_features
