"""The transitions of several updates and the random numbers drawn for them, in buffers at fixed addresses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import upload
from learner.losses.method import ValueMethod
from learner.networks.frame_blocks import BORDER, images_in
from learner.networks.model import ExtraInputs
from learner.replay.replay_frames import Batch, planes_per_transition
from learner.team.team import Team, slices
from shared.prng import Stream, bits, philox


class Chunk(NamedTuple):
    """Buffers for u updates of b transitions, n = u * b in all. A buffer that a run does not need is empty."""

    blocks: Tensor
    """uint8[n, g, g, k * 16]: the planes of both stacks (learner/replay/replay_frames.py)."""
    action_one_hot: Tensor
    """float32[n, actions]: one-hot a_t."""
    reward: Tensor
    """float32[n]: the return of the steps."""
    discount: Tensor
    """float32[n]; 0 where the return ends."""
    next_outputs: Tensor
    """float32[n, actions, atoms]: outputs of the target network in s', where the online one chooses the action."""
    target: Tensor
    """float32[n] or [n, atoms]: TD targets."""
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
    td_error: Tensor
    """float32[n]: size of the error that the updates found for each transition."""
    tree_index: Tensor
    """int64[n]: leaves of the transitions in the tree of priorities; on the CPU."""
    augmentation: Tensor
    """float32[n, 2, 3], of s and of s': offsets of the crop, down and right, and the factor of pixels; on the CPU."""

    @classmethod
    def create(cls, updates: int, batch: int, method: ValueMethod, noise: int, team: Team) -> Chunk:
        """Empty buffers for `updates` updates; the fractions that choose are in place.

        Args:
            noise: normal numbers that the network's noisy layers take at a time.
            team: members that each write a part of a chunk.
        """
        n, network, algorithm = updates * batch, method.network, method.algorithm
        atoms, frames = method.samples or network.atoms, network.frames
        planes = planes_per_transition(frames, algorithm.n_step)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return team.zeros(*shape, dtype=dtype, device=method.device)

        return cls(
            blocks=zeros(*frames.blocks(n, planes), dtype=torch.uint8),
            action_one_hot=zeros(n, network.actions),
            reward=zeros(n),
            discount=zeros(n),
            next_outputs=zeros(n if algorithm.double else 0, network.actions, atoms),
            target=zeros(n) if method.scalar_target else zeros(n, atoms),
            fractions=zeros(n, method.samples),
            next_fractions=method.policy_fractions(n, method.samples),
            noise=zeros(updates, noise),
            next_noise=zeros(updates, noise),
            importance=zeros(n if algorithm.prioritized else 0),
            td_error=zeros(n if algorithm.prioritized else 0),
            tree_index=torch.zeros(n if algorithm.prioritized else 0, dtype=torch.int64),
            augmentation=torch.zeros(n if algorithm.augment else 0, 2, 3),
        )

    def minibatch(self, index: int) -> Chunk:
        """Views of the transitions of one update."""
        batch = len(self.reward) // len(self.noise)
        return self.part(slice(index * batch, (index + 1) * batch))

    def part(self, rows: slice) -> Chunk:
        """Views of some transitions; with noise those of whole updates."""
        batch = len(self.reward) // len(self.noise)
        updates = slice(rows.start // batch, -(-rows.stop // batch))
        views = {name: buffer[rows] for name, buffer in self._asdict().items()}
        return self._replace(**views | {"noise": self.noise[updates], "next_noise": self.next_noise[updates]})

    def parts(self, count: int) -> list[slice]:
        """Rows of the `count` parts into which a team divides a chunk; with noise a part has whole updates."""
        unit = len(self.reward) // len(self.noise) if self.noise.numel() else 1
        cuts = slices(len(self.reward) // unit, count)
        return [slice(cut.start * unit, cut.stop * unit) for cut in cuts]

    @property
    def extra_inputs(self) -> ExtraInputs:
        """Inputs of the online network beside frames."""
        return ExtraInputs.from_buffers(self.fractions, self.noise)

    def write_transitions(self, batch: Batch, actions: Tensor) -> None:
        """Take over all fields that no network is needed for, but for the frames.

        Args:
            actions: int64[actions], 0, 1, ... on the device.
        """
        # One-hot, not gather: the backward pass of gather adds up in an order that a GPU does not fix.
        self.action_one_hot.copy_(batch.action[:, None] == actions)
        self.reward.copy_(batch.reward)
        self.discount.copy_(batch.discount)

    def draw_random_inputs(self, seed: int, round_: int, number: int) -> None:
        """Fractions, noise and augmentation of chunk `number` of a round: a function of the three alone.

        Philox counters. Offsets are those of Dopamine, 0 to 7 of a border of 4: the last shift, by 4 pixels, never is.
        """
        for stream, buffer, other in (
            (Stream.FRACTIONS, self.fractions, self.next_fractions),
            (Stream.NOISE, self.noise, self.next_noise),
        ):
            if not buffer.numel():
                continue
            generator = philox(bits(seed, stream, round_), number)
            draw = generator.standard_normal if stream is Stream.NOISE else generator.random
            # The target network's come after the online network's, and behind the fixed fractions that choose.
            for each in (buffer, other[:, other.shape[1] - buffer.shape[1] :]):
                each.copy_(upload(torch.from_numpy(draw(tuple(each.shape), np.float32)), each.device))
        if n := len(self.augmentation):
            generator = philox(bits(seed, Stream.AUGMENT, round_), number)
            offsets = generator.integers(0, 2 * BORDER, (n, 2, 2))
            factor = 1.0 + 0.05 * generator.standard_normal((n, 2, 1)).clip(-2.0, 2.0)
            self.augmentation.copy_(torch.from_numpy(np.concatenate([offsets, factor], 2)))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Planes uint8[n, k, size, size] of both stacks, actions int64[n], and what the targets were computed from."""
        return {
            "frames": images_in(self.blocks.cpu()).contiguous().numpy(),
            "action": self.action_one_hot.argmax(1).numpy(force=True),
            "reward": self.reward.numpy(force=True).copy(),
            "discount": self.discount.numpy(force=True).copy(),
            "target_value": self.target.numpy(force=True).copy(),
        }
