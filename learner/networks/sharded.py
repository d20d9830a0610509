"""Passes over a minibatch in shards: parallel in threads and ranks, with sums that do not depend on their numbers.

On a CPU one pass over a large batch leaves cores idle between its operations. Here each thread takes whole shards
through the network. With several ranks (learner/ranks) each takes as many shards. Then every rank has the outputs and
gradients of all shards, and adds them in the same order. The number of shards decides the last bits of a gradient; the
numbers of threads and ranks decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from learner.engine.side_stream import SideStream
from learner.networks.model import ExtraInputs, ForwardPass, Model, Recurrence
from learner.networks.packed_model import PackedModel

T = TypeVar("T")


class Ranks(Protocol):
    """The processes that share the shards of every pass (`learner.ranks.rank_group.RankGroup`)."""

    rank: int
    size: int

    def gather(self, own: Tensor, out: Tensor) -> None:
        """Write the tensors of all ranks, of one shape, into `out`, in the order of ranks."""


class ShardedPass(NamedTuple):
    """Result of a forward pass in shards."""

    outputs: Tensor
    """float32[n, outputs, atoms], in the order of the batch."""
    shards: Sequence[ForwardPass]
    """The pass of each shard of this process, for its backward pass."""
    sequences: int
    """Parts of the batch that no shard divides: its rows, or the sequences of a recurrent network."""

    @property
    def state(self) -> Tensor | None:
        """States after the last tick of each sequence; None: the network is not recurrent."""
        states = [shard.state for shard in self.shards if shard.state is not None]
        return torch.cat(states) if states else None


class ShardedModel:
    """A model whose passes divide a batch into shards of equal size, the first ones one sample larger if need be.

    With a recurrent network a shard holds whole sequences. See `learner.networks.model.Model`. It takes the noise of
    one update at a time.
    """

    def __init__(self, model: PackedModel, shards: int, threads: int, ranks: Ranks | None = None) -> None:
        """`model`, whose batches are computed in two or more `shards`.

        Args:
            threads: number of threads; 0: the caller's own, as on a GPU.
            ranks: processes that share the shards, of which each has as many; None: this one has all.
        """
        self._model, self._shards, self._ranks = model, shards, ranks
        size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
        if shards % size:
            raise ValueError(f"{size} ranks cannot share {shards} shards evenly.")
        own = shards // size
        self._own = slice(rank * own, (rank + 1) * own)
        self._replicas = [model.replica() for _ in range(own)]
        as_caller = torch.set_num_threads, (torch.get_num_threads(),)
        self._pool = ThreadPoolExecutor(threads, "shard", *as_caller) if threads else None
        self._gradients = [torch.zeros_like(model.params_bf16) for _ in range(own)]
        for replica, gradient in zip(self._replicas, self._gradients, strict=True):
            replica.gradient_into(gradient)
        if ranks is not None:
            self._sent, self._received = (model.params_bf16.new_zeros(n, len(model.params_bf16)) for n in (own, shards))
        self._gradient = self._gradients[0]
        self.network, self.noise = model.network, model.noise
        self.params, self.params_bf16, self.head_offset = model.params, model.params_bf16, model.head_offset
        self.pack, self.unpack = model.pack, model.unpack
        self.export_into, self.take = model.export_into, model.take
        self.sync_copy, self.refresh = model.sync_copy, model.refresh

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        self._gradient = flat

    def forward(
        self,
        blocks: Tensor,
        stack_offset: int,
        extra_inputs: ExtraInputs,
        settle: Callable[[], None] | None = None,
        *,
        learns: bool = False,
    ) -> ShardedPass:
        """The outputs for stacks (`Model.forward`)."""
        if settle is not None:
            settle()

        def forward(replica: Model, part: tuple[Tensor, ExtraInputs]) -> ForwardPass:
            return replica.forward(part[0], stack_offset, part[1], learns=learns)

        recurrence = extra_inputs.recurrence
        sequences = len(blocks) if recurrence is None else len(recurrence.state)
        parts = zip(self._own_parts(blocks, sequences), self._own_inputs(extra_inputs), strict=True)
        shards = self._in_threads(forward, parts)
        outputs = torch.cat([shard.outputs.detach() for shard in shards])
        if self._ranks is not None:
            own, outputs = outputs, outputs.new_empty(len(blocks), *outputs.shape[1:])
            self._ranks.gather(own, outputs)
        return ShardedPass(outputs, shards, sequences)

    def backward(self, saved: ShardedPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`): the sum over all shards, in their order."""

        def backward(replica: Model, part: tuple[ForwardPass, Tensor]) -> None:
            replica.backward(part[0], part[1], SideStream())

        self._in_threads(backward, zip(saved.shards, self._own_parts(gradient, saved.sequences), strict=True))
        for replica in self._replicas:  # all have found the same
            replica.keep_state()
        gradients: Sequence[Tensor] = self._gradients
        if self._ranks is not None:
            torch.stack(self._gradients, out=self._sent)
            self._ranks.gather(self._sent, self._received)
            gradients = self._received.unbind()
        torch.add(gradients[0], gradients[1], out=self._gradient)
        for other in gradients[2:]:
            self._gradient.add_(other)

    def _own_parts(self, rows: Tensor, sequences: int) -> Sequence[Tensor]:
        """The rows of each shard of this process, in whole sequences of equal length."""
        parts = rows.unflatten(0, (sequences, -1)).tensor_split(self._shards)[self._own]
        return [part.flatten(0, 1) for part in parts]

    def _own_inputs(self, extra_inputs: ExtraInputs) -> Sequence[ExtraInputs]:
        """The extra inputs of each shard of this process."""
        fractions, noise, recurrence = extra_inputs
        if noise is not None and len(noise) > 1:
            raise ValueError(f"A pass in shards takes the noise of one update, not of {len(noise)}.")
        if recurrence is not None:
            sequences = len(recurrence.state)
            parts = (self._own_parts(each, sequences) for each in recurrence)
            return [ExtraInputs(recurrence=Recurrence(*each)) for each in zip(*parts, strict=True)]
        if fractions is None:
            return [extra_inputs] * len(self._replicas)
        return [ExtraInputs(part, noise) for part in self._own_parts(fractions, len(fractions))]

    def _in_threads(self, work: Callable[[Model, Any], T], parts: Iterable[Any]) -> list[T]:
        """Results of `work` for each shard of this process, in order."""
        if self._pool is None:
            return list(map(work, self._replicas, parts))
        return list(self._pool.map(torch.inference_mode()(work), self._replicas, parts))
