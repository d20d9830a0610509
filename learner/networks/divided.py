"""Passes over a minibatch in parts, which the members of a learner share (learner/team).

A part is some rows of the batch, and some of the parameters. So the shapes of all kernels follow from the number of
parts; sums of gradients run over parts in their order. The number of members decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from learner.engine.bf16 import sum_parts
from learner.engine.side_stream import SideStream
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
    state: None = None
    """A learner needs no state after the last tick."""


class DividedModel:
    """A model whose members compute parts of the rows. See `learner.networks.model.Model`.

    It takes the noise of one update at a time.
    """

    def __init__(self, model: PackedModel, parts: int, team: Team) -> None:
        """`model`, whose batches are computed in so many parts by the members of `team`."""
        self._model, self._team = model, team
        self.parts: list[list[slice]] = [[place] for place in slices(len(model.params), parts)]
        self._own = team.own(parts)
        self._moved = [place for part in team.written(parts) for place in self.parts[part]]
        self._replicas = {part: model.replica() for part in self._own}
        self._outputs: dict[tuple[int, ...], list[Tensor]] = {}
        self.network, self.noise = model.network, model.noise
        self.params, self.params_bf16 = model.params, model.params_bf16
        self.pack, self.unpack = model.pack, model.unpack
        self.export_into, self.take = model.export_into, model.take
        self.sync_copy, self.refresh = model.sync_copy, model.refresh
        self._prepare()

    def _prepare(self) -> None:
        """Make the vectors that the parts write their gradients into."""
        size, like = len(self.params), self.params_bf16
        self._gradients = self._team.zeros(len(self.parts), size, dtype=like.dtype, device=like.device)
        for part, replica in self._replicas.items():
            replica.gradient_into(self._gradients[part])

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        self._gradient = flat

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> DividedPass:
        """The outputs for stacks (`Model.forward`)."""
        if extra_inputs.noise is not None and len(extra_inputs.noise) > 1:
            raise ValueError(f"A pass in parts takes the noise of one update, not of {len(extra_inputs.noise)}.")
        passes = list[tuple[Share, ForwardPass]]()
        for share in self.shares(len(blocks), extra_inputs.recurrence):
            inputs = _of_share(extra_inputs, share)
            replica = self._replicas[share.part]
            passes.append((share, replica.forward(blocks[share.rows], stack_offset, inputs, learns=learns)))
        return DividedPass(self._exchanged(len(blocks), passes, extra_inputs), passes)

    def backward(self, saved: DividedPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`): the sum over all parts, in their order.

        A member writes those that its optimizer moves.
        """
        for share, part in saved.passes:
            self._replicas[share.part].backward(part, gradient[share.rows], SideStream())
        self._team.exchange(self._gradients)
        if self._model.keeps_state:
            for replica in self._replicas.values():  # all have found the same
                replica.keep_state()
            self._team.sync()
        for place in self._moved:
            sum_parts(self._gradients[:, place], self._gradient[place])

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


def _of_share(extra_inputs: ExtraInputs, share: Share) -> ExtraInputs:
    fractions, noise, recurrence = extra_inputs
    return ExtraInputs(
        None if fractions is None else fractions[share.rows],
        noise,
        None if recurrence is None else Recurrence(recurrence.state[share.sequences], recurrence.start[share.rows]),
    )
