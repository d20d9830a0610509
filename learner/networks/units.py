"""Plain networks on a CPU: convolutions divided by rows, the hidden layer by units (Krizhevsky 2014, arXiv:1404.5997).

Convolutions have few parameters and much work: a member computes them for its rows. The hidden layer has most of the
parameters: a member computes its units for all rows, and alone has their gradient. So an update exchanges the features
of a batch, parts of their gradient, and gradients of the convolutions, but never one of all parameters.

One update has five waits. A member writes only its parts, and reads those of others behind a wait:

    forward:   own rows, convolutions -> features  |  own units -> hidden  |  outputs, the same by every member
    backward:  own units -> their part of the gradient by the features  |  sum of these parts for own rows,
               convolutions -> gradients  |  sum of these for own parameters, optimizer  |
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.engine.bf16 import sum_parts
from learner.engine.side_stream import SideStream
from learner.networks.divided import DividedModel, DividedPass, Share
from learner.networks.fused import FusedModel, features_of, relu_backward
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs
from learner.team.team import Team

Group = list[Share]
"""Parts of a batch that lie side by side."""


class Buffers(NamedTuple):
    """Tensors that members of a team exchange in a pass over n rows."""

    features: Tensor
    """[n, features]."""
    hidden: Tensor
    """float32[n, hidden]."""
    by_features: Tensor
    """[P, n, features]: the parts of the gradient by the features."""
    groups: list[Group]
    """Parts of the rows whose passes are made at once."""


class UnitsModel(DividedModel):
    """A plain network whose minibatches are divided by rows and units; other passes are divided by rows."""

    _model: FusedModel

    def __init__(self, model: FusedModel, parts: int, team: Team) -> None:
        """Arguments as for `DividedModel`."""
        super().__init__(model, parts, team)
        self._buffers: dict[int, Buffers] = {}

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        super().gradient_into(flat)
        self._model.gradient_into(flat)

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> DividedPass:
        """The outputs for stacks (`Model.forward`)."""
        if not learns:
            return super().forward(blocks, stack_offset, extra_inputs)
        model, network, read = self._model, self.network, self._model.read
        features, hidden, _, groups = self._buffers_for(len(blocks))
        passes = list[tuple[Group, list[Tensor]]]()
        for group in groups:
            passes.append((group, model.convolve(blocks[_rows_of(group)], stack_offset)))
            features[_rows_of(group)] = features_of(passes[-1][1][-1])
        self._team.sync()
        for part in self._own:
            units = self._units[0][part]
            hidden[:, units] = F.linear(features, read.hidden.weight[units], read.hidden.bias[units]).relu_()
        self._team.sync()
        outputs = F.linear(hidden, *read.output).view(-1, network.outputs, network.atoms)
        return DividedPass(outputs, passes)

    def backward(self, saved: DividedPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`); a member writes those that its optimizer moves."""
        last = gradient.view(len(gradient), -1)
        features, hidden, by_features, _ = self._buffers_for(len(gradient))
        for part in self._own:
            self._write_matrices(part, last, features, hidden, by_features[part])
        self._team.sync()
        for group, inputs in saved.passes:
            self._write_convolutions(group, inputs, by_features[:, _rows_of(group)])
        self._team.sync()
        for part in self._own:
            sum_parts(self._gradients[:, self._cuts[part]], self._gradient[self._cuts[part]])

    def _write_matrices(self, part: int, last: Tensor, features: Tensor, hidden: Tensor, by_features: Tensor) -> None:
        """Gradients of the units and outputs of a part, and its part of the gradient by the features."""
        read, into, units, rows = self._model.read, self._model.gradients, self._units[0][part], self._units[1][part]
        by_units = relu_backward(last @ read.output.weight[:, units], hidden[:, units]).to(features.dtype)
        torch.mm(by_units, read.hidden.weight[units], out=by_features)
        write_gradient(by_units, features, Affine(*(each[units] for each in into.hidden)))
        if rows.stop > rows.start:
            write_gradient(last[:, rows], hidden, Affine(*(each[rows] for each in into.output)))

    def _write_convolutions(self, group: Group, inputs: list[Tensor], by_features: Tensor) -> None:
        """Gradients of the convolutions by the rows of each part of a group."""
        first = group[0].rows.start
        by_outputs = self._by_outputs(inputs, by_features)
        for share in group:
            rows = slice(share.rows.start - first, share.rows.stop - first)
            own, replica = [each[rows] for each in inputs], self._replicas[share.part]
            assert isinstance(replica, FusedModel), "as the model that it is made of"
            for i, by_output in by_outputs.items():
                replica.write_convolution(own, i, by_output[rows])

    def _by_outputs(self, inputs: list[Tensor], by_features: Tensor) -> dict[int, Tensor]:
        """Gradient by the output of each convolution before ReLU, from its parts by the features."""
        return dict(self._model.by_outputs(inputs, by_features.sum(0, dtype=torch.float32).to(inputs[-1].dtype)))

    def _buffers_for(self, rows: int) -> Buffers:
        """Shared memory for passes over so many rows."""
        if rows not in self._buffers:
            network, parts, shares = self.network, len(self.parts), self.shares(rows)
            hidden = self._team.zeros(rows, network.hidden)
            features = self._zeros(rows, network.features)
            groups = [shares] if self._joins(shares) else [[share] for share in shares]
            self._buffers[rows] = Buffers(features, hidden, self._zeros(parts, rows, network.features), groups)
        return self._buffers[rows]

    def _joins(self, shares: Group) -> bool:
        """True if passes over the rows of all these parts at once have the bits of a pass for each, which costs more.

        Sums over rows are made part by part in any case. Kernels are chosen by shapes, so the order of their sums does
        not depend on the numbers; in thousands of random numbers another order would show.
        """
        if not shares:
            return False
        generator, network, first = torch.Generator().manual_seed(0), self.network, shares[0].rows.start
        count = shares[-1].rows.stop - first
        blocks = torch.randint(0, 256, network.frames.blocks(count), generator=generator, dtype=torch.uint8)
        by_features = torch.randn(len(self.parts), count, network.features, generator=generator)
        found = list[list[Tensor]]()
        for groups in ([shares], [[share] for share in shares]):
            passes = list[list[Tensor]]()
            for group in groups:
                rows = slice(group[0].rows.start - first, group[-1].rows.stop - first)
                inputs = self._model.convolve(blocks[rows], 0)
                gradient = by_features[:, rows].to(inputs[-1].dtype)
                passes.append([*inputs, *self._by_outputs(inputs, gradient).values()])
            found.append([torch.cat(each) for each in zip(*passes, strict=True)])
        return all(map(torch.equal, *found))


def _rows_of(group: Group) -> slice:
    return slice(group[0].rows.start, group[-1].rows.stop)
