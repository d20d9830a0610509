"""Passes over a minibatch in parts, which the members of a learner share (learner/team).

A part is some rows of the batch, and some of the parameters. So the shapes of all kernels follow from the number of
parts; sums of gradients run over parts in their order. The number of members decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from learner.engine.accelerator import is_gpu
from learner.engine.bf16 import sum_parts
from learner.engine.side_stream import SideStream
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs, ForwardPass, Recurrence
from learner.networks.packed_model import PackedModel, Rows
from learner.team.team import Team, slices

LEAST_ROWS = 4
"""Rows of the smallest part that is joined with others: products of fewer rows have kernels of their own in float32."""
COMPARED_ROWS = 256
"""Rows, in as many batches as need be, by which a pass over several parts is compared with a pass for each."""


class Group(NamedTuple):
    """Neighboring parts of a batch whose passes are made at once."""

    rows: slice
    """Whole sequences of a recurrent network."""
    parts: Rows
    """Rows of each part, counted from the first one of the group."""


Passes = Sequence[tuple[Group, ForwardPass]]
"""Groups of this member and results of their forward passes."""


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
        self._model, self._team, layers = model, team, model.linear_in(model.params)
        self._units = [slices(len(weight), parts) for weight, _ in layers]
        first = min((int(weight.storage_offset()) for weight, _ in layers), default=len(model.params))
        self._cuts = slices(first, parts)
        # Parameters of linear layers are cut by units, the others, which lie before them, anywhere.
        self.parts = [[cut] for cut in self._cuts]
        for layer, units in zip(layers, self._units, strict=True):
            for places, rows in zip(self.parts, units, strict=True):
                places += [_place_of(each[rows]) for each in layer]
        self._own = team.own(parts)
        self._gradients = self._zeros(parts, first)
        self._outputs: dict[tuple[int, ...], list[Tensor]] = {}
        self._kept = cache(partial(self._make_kept, zeros=self._zeros))
        self._groups_of: dict[tuple[int, int], list[Group]] = {}
        self.network, self.noise = model.network, model.noise
        self.params, self.params_bf16 = model.params, model.params_bf16
        self.pack, self.unpack = model.pack, model.unpack
        self.export_into, self.take = model.export_into, model.take
        self.sync_copy, self.refresh = model.sync_copy, model.refresh
        model.gradient_into(*self._gradients)

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        self._gradient, self._layers = flat, self._model.linear_in(flat)

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> ForwardPass:
        """The outputs for stacks (`Model.forward`)."""
        groups = self._groups(blocks, stack_offset, extra_inputs)
        passes = self._forward(groups, blocks, stack_offset, extra_inputs, learns=learns)
        return ForwardPass(self._exchanged(len(blocks), passes, extra_inputs), saved=passes)

    def backward(self, saved: ForwardPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`); a member writes those that its optimizer moves.

        Gradients of linear layers are computed from all rows, for some units by each member; they are most of the
        parameters. Of the others the sums over all parts are made, in their order.
        """
        team, each = self._team, gradient.shape[2] if self.network.method == "iqn" else 1  # a row for each fraction
        kept = self._kept(len(gradient) * each)
        self._backward(saved.saved, gradient, kept)
        team.exchange(self._gradients, *(each for layer in kept for each in layer))
        if self._model.keep_state():  # all have found the same
            team.sync()
        for part in team.written(len(self.parts)):
            sum_parts(self._gradients[:, self._cuts[part]], self._gradient[self._cuts[part]])
            for layer, cuts, (by_outputs, inputs) in zip(self._layers, self._units, kept, strict=True):
                units = cuts[part]
                if units.stop > units.start:
                    write_gradient(by_outputs[:, units], inputs, Affine(layer.weight[units], layer.bias[units]))

    def _forward(
        self, groups: Sequence[Group], blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool
    ) -> Passes:
        passes = list[tuple[Group, ForwardPass]]()
        for group in groups:
            read, inputs = blocks[group.rows], _of_rows(extra_inputs, group.rows)
            passes.append((group, self._model.forward(read, stack_offset, inputs, learns=learns, rows=group.parts)))
        return passes

    def _backward(self, passes: Passes, gradient: Tensor, kept: list[Kept]) -> None:
        """Write the gradients of these parts, and keep what those of linear layers follow from."""
        each = len(kept[0].inputs) // len(gradient)
        for group, saved in passes:
            self._model.keep = partial(_keep, kept, slice(group.rows.start * each, group.rows.stop * each))
            self._model.backward(saved, gradient[group.rows], SideStream())

    def _make_kept(self, rows: int, zeros: Callable[..., Tensor]) -> list[Kept]:
        """Memory for the linear layers in passes over so many rows."""
        layers = zip(self._layers, self._model.matrices, strict=True)
        return [Kept(*(zeros(rows, n, dtype=matrix.dtype) for n in layer.weight.shape)) for layer, matrix in layers]

    def _zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Shared zeros, by default in the dtype of the passes."""
        return self._team.zeros(*shape, dtype=dtype or self._model.params_bf16.dtype, device=self._model.params.device)

    def _groups(self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs) -> Sequence[Group]:
        """The parts of a batch that this member computes: together if that has the bits of a pass for each."""
        rows, recurrence = len(blocks), extra_inputs.recurrence
        each = 1 if recurrence is None else rows // len(recurrence.state)
        if (rows, each) in self._groups_of:
            return self._groups_of[rows, each]
        cuts = [slice(cut.start * each, cut.stop * each) for cut in slices(rows // each, len(self.parts))]
        own = {part: cuts[part] for part in self._own if cuts[part].stop > cuts[part].start}
        groups = [_group({part: cut}) for part, cut in own.items()]
        apart = recurrence is not None or is_gpu(self.params.device) or not self._model.takes_parts
        if len(own) > 1 and not apart and all(cut.stop - cut.start >= LEAST_ROWS for cut in own.values()):
            ways, seeds = [groups, [_group(own)]], range(-(-COMPARED_ROWS // rows))
            if all(self._same_bits(ways, blocks, stack_offset, extra_inputs, seed) for seed in seeds):
                groups = ways[1]
        self._groups_of[rows, each] = groups
        return groups

    def _same_bits(
        self, ways: list[list[Group]], blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, seed: int
    ) -> bool:
        """True if passes over the groups of either way, alone and there and back, have the same bits for random frames.

        Sums over rows are made part by part in any case. Kernels are chosen by shapes, so the order of their sums does
        not depend on the numbers; in hundreds of rows another order would show.
        """
        found = list[list[Tensor]]()
        for groups in ways:
            generator, kept = torch.Generator().manual_seed(seed), self._make_kept(len(blocks), torch.zeros)
            random = torch.randint(0, 256, blocks.shape, generator=generator, dtype=torch.uint8)
            acting = self._forward(groups, random, stack_offset, extra_inputs, learns=False)
            passes = self._forward(groups, random, stack_offset, extra_inputs, learns=True)
            outputs = torch.cat([saved.outputs.detach() for _, saved in (*acting, *passes)])
            self._backward(passes, torch.randn(len(blocks), *outputs.shape[1:], generator=generator), kept)
            found.append([outputs, self._gradients[list(self._own)], *(each for layer in kept for each in layer)])
        return all(map(torch.equal, *found))

    def _exchanged(self, rows: int, passes: Passes, extra_inputs: ExtraInputs) -> Tensor:
        """The outputs of all members."""
        network, fractions = self.network, extra_inputs.fractions
        shape = rows, network.outputs, network.atoms if fractions is None else fractions.shape[1]
        if shape not in self._outputs:  # two: a member may begin the next pass while another still reads
            self._outputs[shape] = [self._team.zeros(*shape, device=self.params.device) for _ in range(2)]
        whole = self._outputs[shape]
        whole.reverse()
        for group, saved in passes:
            whole[0][group.rows] = saved.outputs.detach()
        self._team.exchange(whole[0])
        return whole[0].clone()


def _place_of(view: Tensor) -> slice:
    """The place of a contiguous view in its vector."""
    return slice(int(view.storage_offset()), int(view.storage_offset()) + view.numel())


@torch.inference_mode()
def _keep(kept: list[Kept], rows: slice, number: int, by_outputs: Tensor, inputs: Tensor) -> None:
    """Keep what the gradient of a linear layer follows from, for these rows."""
    kept[number].by_outputs[rows] = by_outputs
    kept[number].inputs[rows] = inputs


def _group(cuts: dict[int, slice]) -> Group:
    """A group of parts, by their rows."""
    first, last = min(cut.start for cut in cuts.values()), max(cut.stop for cut in cuts.values())
    return Group(slice(first, last), {part: slice(cut.start - first, cut.stop - first) for part, cut in cuts.items()})


def _of_rows(extra_inputs: ExtraInputs, rows: slice) -> ExtraInputs:
    fractions, noise, recurrence = extra_inputs
    if recurrence is not None:
        each = len(recurrence.start) // len(recurrence.state)
        recurrence = Recurrence(recurrence.state[rows.start // each : rows.stop // each], recurrence.start[rows])
    return ExtraInputs(None if fractions is None else fractions[rows], noise, recurrence)
