"""Passes over a minibatch in parts, which the members of a learner share (learner/team).

A part is some rows of the batch, and some of the parameters. So the shapes of all kernels follow from the number of
parts; sums of gradients run over parts in their order. The number of members decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from learner.engine.bf16 import sum_parts
from learner.engine.side_stream import SideStream
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs, ForwardPass, Recurrence
from learner.networks.packed_model import PackedModel
from learner.team.team import Team, slices


class Share(NamedTuple):
    """A part of a batch; no part has no row."""

    part: int
    rows: slice
    sequences: slice
    """The same rows as sequences of a recurrent network, which no part divides; else as rows."""


class DividedPass(NamedTuple):
    """Result of a forward pass in parts."""

    outputs: Tensor
    """float32[n, outputs, atoms] of the whole batch."""
    passes: Sequence[tuple[Any, Any]]
    """Parts of this member and their results, for the backward pass."""
    each: int = 1
    """Rows of linear layers for each row of the batch: fractions of an implicit network."""
    state: None = None
    """A learner needs no state after the last tick."""


class Kept(NamedTuple):
    """Tensors from which the gradient of a linear layer follows, for all rows."""

    by_outputs: Tensor
    """[n, outputs]: the gradient by the outputs."""
    inputs: Tensor
    """[n, inputs]."""


class DividedModel:
    """A model whose members compute parts of the rows. See `learner.networks.model.Model`.

    It takes the noise of one update at a time.
    """

    def __init__(self, model: PackedModel, parts: int, team: Team) -> None:
        """`model`, whose batches are computed in so many parts by the members of `team`."""
        self._model, self._team, views = model, team, model.views(model.params)
        layers = [(views[matrix.weight], views[matrix.bias]) for matrix in model.matrices]
        self._units = [slices(len(weight), parts) for weight, _ in layers]
        first = min((int(weight.storage_offset()) for weight, _ in layers), default=len(model.params))
        self._cuts = slices(first, parts)
        # Parameters of linear layers are cut by units, the others, which lie before them, anywhere.
        self.parts = [[cut] for cut in self._cuts]
        for layer, units in zip(layers, self._units, strict=True):
            for places, rows in zip(self.parts, units, strict=True):
                places += [_place_of(each[rows]) for each in layer]
        self._own = team.own(parts)
        self._replicas = {part: model.replica() for part in self._own}
        self._gradients = self._zeros(parts, first)
        self._outputs: dict[tuple[int, ...], list[Tensor]] = {}
        self._kept: dict[int, list[Kept]] = {}
        self._present: tuple[list[Kept], slice] = [], slice(0)
        self.network, self.noise = model.network, model.noise
        self.params, self.params_bf16 = model.params, model.params_bf16
        self.pack, self.unpack = model.pack, model.unpack
        self.export_into, self.take = model.export_into, model.take
        self.sync_copy, self.refresh = model.sync_copy, model.refresh
        for part, replica in self._replicas.items():
            replica.gradient_into(self._gradients[part], self._keep)

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        views = self._model.views(flat)
        self._gradient = flat
        self._layers = [Affine(views[matrix.weight], views[matrix.bias]) for matrix in self._model.matrices]

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> DividedPass:
        """The outputs for stacks (`Model.forward`)."""
        passes = list[tuple[Share, ForwardPass]]()
        for share in self.shares(len(blocks), extra_inputs.recurrence):
            inputs = _of_share(extra_inputs, share)
            replica = self._replicas[share.part]
            passes.append((share, replica.forward(blocks[share.rows], stack_offset, inputs, learns=learns)))
        each = 1 if extra_inputs.fractions is None else extra_inputs.fractions.shape[1]
        return DividedPass(self._exchanged(len(blocks), passes, extra_inputs), passes, each)

    def backward(self, saved: DividedPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`); a member writes those that its optimizer moves.

        Gradients of linear layers are computed from all rows, for some units by each member; they are most of the
        parameters. Of the others the sums over all parts are made, in their order.
        """
        team, kept = self._team, self._kept_for(len(gradient) * saved.each)
        for share, part in saved.passes:
            self._present = kept, slice(share.rows.start * saved.each, share.rows.stop * saved.each)
            self._replicas[share.part].backward(part, gradient[share.rows], SideStream())
        team.exchange(self._gradients, *(each for layer in kept for each in layer))
        if self._model.keeps_state:
            for replica in self._replicas.values():  # all have found the same
                replica.keep_state()
            team.sync()
        for part in team.written(len(self.parts)):
            sum_parts(self._gradients[:, self._cuts[part]], self._gradient[self._cuts[part]])
            for layer, cuts, (by_outputs, inputs) in zip(self._layers, self._units, kept, strict=True):
                units = cuts[part]
                if units.stop > units.start:
                    write_gradient(by_outputs[:, units], inputs, Affine(layer.weight[units], layer.bias[units]))

    def _kept_for(self, rows: int) -> list[Kept]:
        """Shared memory for the linear layers in passes over so many rows."""
        if rows not in self._kept:
            self._kept[rows] = []
            for layer, (*_, dtype) in zip(self._layers, self._model.matrices, strict=True):
                by_outputs, inputs = (self._zeros(rows, size, dtype=dtype) for size in layer.weight.shape)
                self._kept[rows].append(Kept(by_outputs, inputs))
        return self._kept[rows]

    @torch.inference_mode()
    def _keep(self, number: int, by_outputs: Tensor, inputs: Tensor) -> None:
        """Keep what the gradient of a linear layer follows from, for the rows of the present part."""
        kept, rows = self._present
        kept[number].by_outputs[rows] = by_outputs
        kept[number].inputs[rows] = inputs

    def _zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Shared zeros, by default in the dtype of the passes."""
        return self._team.zeros(*shape, dtype=dtype or self._model.params_bf16.dtype, device=self._model.params.device)

    def shares(self, rows: int, recurrence: Recurrence | None = None) -> list[Share]:
        """The parts of a batch that this member computes."""
        sequences = rows if recurrence is None else len(recurrence.state)
        each, cuts = rows // sequences, slices(sequences, len(self.parts))
        found = (Share(part, slice(cut.start * each, cut.stop * each), cut) for part, cut in enumerate(cuts))
        return [share for share in found if share.part in self._own and share.rows.stop > share.rows.start]

    def _exchanged(self, rows: int, passes: Sequence[tuple[Share, ForwardPass]], extra_inputs: ExtraInputs) -> Tensor:
        """The outputs of all members."""
        network, fractions = self.network, extra_inputs.fractions
        shape = rows, network.outputs, network.atoms if fractions is None else fractions.shape[1]
        if shape not in self._outputs:  # two: a member may begin the next pass while another still reads
            self._outputs[shape] = [self._team.zeros(*shape, device=self.params.device) for _ in range(2)]
        whole = self._outputs[shape]
        whole.reverse()
        for share, part in passes:
            whole[0][share.rows] = part.outputs.detach()
        self._team.exchange(whole[0])
        return whole[0].clone()


def _place_of(view: Tensor) -> slice:
    """The place of a contiguous view in its vector."""
    return slice(int(view.storage_offset()), int(view.storage_offset()) + view.numel())


def _of_share(extra_inputs: ExtraInputs, share: Share) -> ExtraInputs:
    fractions, noise, recurrence = extra_inputs
    return ExtraInputs(
        None if fractions is None else fractions[share.rows],
        noise,
        None if recurrence is None else Recurrence(recurrence.state[share.sequences], recurrence.start[share.rows]),
    )
