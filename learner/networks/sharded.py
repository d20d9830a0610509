"""Passes over a minibatch in shards: parallel in threads, with sums that do not depend on the number of threads.

On a CPU one pass over a large batch leaves cores idle between its operations. Here each thread takes whole shards
through the network. The number of shards decides the last bits of a gradient; the number of threads decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from learner.engine.side_stream import SideStream
from learner.networks.model import ExtraInputs, ForwardPass, Model, ReplicableModel

T = TypeVar("T")


class Pass(NamedTuple):
    """Result of a forward pass in shards."""

    outputs: Tensor
    """float32[n, outputs, atoms], in the order of the batch."""
    shards: Sequence[ForwardPass]
    """The pass of each shard, for its backward pass."""


class ShardedModel:
    """A model whose passes divide a batch into shards of equal size, the first ones one sample larger if need be.

    See `learner.networks.model.Model`. It takes no extra inputs.
    """

    def __init__(self, model: ReplicableModel, shards: int, threads: int) -> None:
        """`model`, whose batches `threads` threads compute in two or more `shards`."""
        self._model = model
        self._replicas = [model.replica() for _ in range(shards)]
        self._pool = ThreadPoolExecutor(threads, "shard", torch.set_num_threads, (torch.get_num_threads(),))
        self._gradients = [torch.zeros_like(model.params_bf16) for _ in range(shards)]
        for replica, gradient in zip(self._replicas, self._gradients, strict=True):
            replica.gradient_into(gradient)
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
    ) -> Pass:
        """The outputs for stacks (`Model.forward`)."""
        if settle is not None:
            settle()

        def forward(replica: Model, part: Tensor) -> ForwardPass:
            return replica.forward(part, stack_offset, extra_inputs, learns=learns)

        shards = self._in_threads(forward, blocks.tensor_split(len(self._replicas)))
        return Pass(torch.cat([shard.outputs.detach() for shard in shards]), shards)

    def backward(self, saved: Pass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`): the sum over shards, in their order."""

        def backward(replica: Model, part: tuple[ForwardPass, Tensor]) -> None:
            replica.backward(part[0], part[1], SideStream())

        parts = gradient.tensor_split(len(self._replicas))
        self._in_threads(backward, zip(saved.shards, parts, strict=True))
        torch.add(self._gradients[0], self._gradients[1], out=self._gradient)
        for other in self._gradients[2:]:
            self._gradient.add_(other)

    def _in_threads(self, work: Callable[[Model, Any], T], parts: Iterable[Any]) -> list[T]:
        """Results of `work` for each shard, in order."""
        return list(self._pool.map(torch.inference_mode()(work), self._replicas, parts))
