"""The transitions of some updates, in buffers that stay where they are, and what is drawn for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.losses.method import Method
from learner.networks.fused import CELL
from learner.networks.model import Model
from learner.replay.gather import GRID
from learner.replay.sampling import Batch, frames_of
from shared.prng import Stream, bits


class Chunk(NamedTuple):
    """Buffers for u updates of b transitions, n = u * b in all. What a run has no use for is empty."""

    blocks: Tensor
    """uint8[n, 21, 21, k * 16]: the frames of both stacks (learner/replay/sampling.py)."""
    chosen: Tensor
    """float32[n, actions]: one-hot a_t."""
    reward: Tensor
    """float32[n]: the return of the steps."""
    discount: Tensor
    """float32[n]; 0 where the return ends."""
    next_state: Tensor
    """float32[n, actions, atoms]: what the target network says of s', where the online one chooses the action."""
    y: Tensor
    """float32[n] or [n, atoms]: what the updates move to."""
    fractions: Tensor
    """float32[n, N]: quantile fractions of the online network."""
    next_fractions: Tensor
    """float32[n, K + N]: those of the target network; the first K choose its action."""
    noise: Tensor
    """float32[u, k], normal: of the online network, a row an update."""
    next_noise: Tensor
    """float32[u, k], normal: of the target network."""
    importance: Tensor
    """float32[n]: weights of the losses."""
    error: Tensor
    """float32[n]: how wrong the updates found each transition."""
    places: Tensor
    """int64[n]: where the transitions stand among the priorities; on the CPU."""

    @classmethod
    def of(cls, updates: int, batch: int, *, model: Model, method: Method, n_step: int, device: torch.device) -> Chunk:
        """Empty buffers for `updates` updates; the fractions that choose are in place."""
        n, network, algorithm = updates * batch, model.network, method.algorithm
        atoms = method.samples or network.atoms

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return cls(
            blocks=zeros(n, GRID, GRID, frames_of(n_step) * CELL, dtype=torch.uint8),
            chosen=zeros(n, network.actions),
            reward=zeros(n),
            discount=zeros(n),
            next_state=zeros(n if algorithm.double else 0, network.actions, atoms),
            y=zeros(n) if method.scalar else zeros(n, atoms),
            fractions=zeros(n, method.samples),
            next_fractions=method.policy_fractions(n, method.samples),
            noise=zeros(updates, model.noise),
            next_noise=zeros(updates, model.noise),
            importance=zeros(n if algorithm.prioritized else 0),
            error=zeros(n if algorithm.prioritized else 0),
            places=torch.zeros(n if algorithm.prioritized else 0, dtype=torch.int64),
        )

    def put(self, batch: Batch, actions: Tensor) -> None:
        """Take over what is known of the transitions without a network, but for their frames."""
        # One-hot, not gather: the backward pass of gather adds up in an order that a GPU does not fix.
        self.chosen.copy_(batch.action[:, None] == actions)
        self.reward.copy_(batch.reward)
        self.discount.copy_(batch.discount)

    def draw(self, seed: int, round_: int, number: int) -> None:
        """Fractions and noise of chunk `number` of a round: a function of the three alone, by Philox counters."""
        for stream, buffer, other in (
            (Stream.FRACTIONS, self.fractions, self.next_fractions),
            (Stream.NOISE, self.noise, self.next_noise),
        ):
            if not buffer.numel():
                continue
            generator = np.random.Generator(np.random.Philox(key=[bits(seed, stream, round_), number]))
            draw = generator.standard_normal if stream is Stream.NOISE else generator.random
            for each in (buffer, other[:, other.shape[1] - buffer.shape[1] :]):
                each.copy_(upload(torch.from_numpy(draw(tuple(each.shape), np.float32)), each.device))
