"""Reference update of Nature DQN: PyTorch layers, autograd and vector operations, in a fast memory layout.

It is slower than `learner/engine/engine.py` and simple enough to check by reading. The engine is compared with it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.engine.initialization import initial_parameters
from learner.losses.scalar_loss import bellman_target
from learner.replay.replay_frames import HostFrames
from learner.replay.sampling import Replay
from shared.config.sections import Learn
from shared.frame_shape import FRAME_SIDE, STACK
from shared.memory.parts.ring import Ring
from shared.network_spec import PLAIN_NETWORKS, Network

AGREEMENT = 0.02
"""Largest relative difference of Q-values and losses, large enough for bfloat16."""


def plain_values(network: str, flat: Tensor, stacks: Tensor) -> Tensor:
    """Q(s, .) [n, actions] of stacks uint8[n, 4, 84, 84], with parameters float32[P] in canonical layout."""
    layers, hidden = PLAIN_NETWORKS[network]
    x = (stacks.float() / 255.0).contiguous(memory_format=torch.channels_last)
    offset = 0

    def take(*shape: int) -> Tensor:
        nonlocal offset
        offset += math.prod(shape)
        return flat[offset - math.prod(shape) : offset].view(shape)

    for out, kernel, stride in layers:
        weight, bias = take(out, x.shape[1], kernel, kernel), take(out)
        x = F.relu(F.conv2d(x, weight, bias, stride))
    features = x.flatten(1)
    weight, bias = take(hidden, features.shape[1]), take(hidden)
    x = F.relu(F.linear(features, weight, bias))
    actions = (len(flat) - offset) // (hidden + 1)
    weight, bias = take(actions, hidden), take(actions)
    return F.linear(x, weight, bias)


class PlainEngine:
    """Reference engine, which starts from the same parameters as `learner.engine.engine.Engine.initialize`.

    The optimizer is centered RMSProp.

    Attributes:
        losses: mean loss per transition, for every update so far.
    """

    def __init__(self, ring: Ring, learn: Learn, seed: int, actions: int, device: torch.device, precision: str) -> None:
        self._learn, self._device = learn, device
        self._bf16 = precision == "bf16"
        start = torch.from_numpy(initial_parameters(Network(learn.network, actions), seed)).to(device)
        self._target, self._flat = start.clone(), start.clone().requires_grad_()
        self._mean, self._square = torch.zeros_like(start), torch.zeros_like(start)
        self._replay = Replay(ring, HostFrames(ring), learn, seed)
        self._frames = torch.from_numpy(ring.flat["frame"])
        self._done = 0
        self.losses: list[float] = []

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Draw the transitions of a round."""
        self._plan = self._replay.draw_round(round_, window_end, updates, updates)
        self._done = 0

    def run(self, count: int) -> None:
        """Run the next `count` updates of the round; after the last one it starts again with the first."""
        size = self._learn.batch_size
        for _ in range(count):
            self._update(self._done % (len(self._plan.action) // size))
            self._done += 1

    def _update(self, index: int) -> None:
        learn, size = self._learn, self._learn.batch_size
        batch = self._plan.part(index * size, (index + 1) * size)
        frames = self._frames.index_select(0, batch.rows.view(-1)).view(size, STACK + 1, FRAME_SIDE, FRAME_SIDE)
        frames = frames.mul_(batch.frame_mask[:, :, None, None]).to(self._device)
        action, reward, discount = (each.to(self._device) for each in (batch.action, batch.reward, batch.discount))
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
            with torch.no_grad():
                future = plain_values(learn.network, self._target, frames[:, 1:]).float().amax(1)
            q = plain_values(learn.network, self._flat, frames[:, :-1]).float()
        target = bellman_target(reward, discount, future)
        action_values = (q * F.one_hot(action, q.shape[1])).sum(1)
        loss = F.huber_loss(action_values, target, reduction="sum")
        self.losses.append(float(loss.detach()) / size)
        (g,) = torch.autograd.grad(loss, self._flat)
        with torch.no_grad():
            decay = learn.optimizer_decay
            self._square.mul_(decay).addcmul_(g, g, value=1.0 - decay)
            self._mean.mul_(decay).add_(g, alpha=1.0 - decay)
            root = torch.addcmul(self._square, self._mean, self._mean, value=-1.0).add_(learn.optimizer_epsilon)
            self._flat.addcdiv_(g, root.sqrt_(), value=-learn.learning_rate)
