"""The passes of a chunk of updates, of any network and method, without what lies between them."""

from __future__ import annotations

import torch

from learner.engine.initialization import initial_parameters
from learner.engine.side_stream import Aside
from learner.losses.method import method_of
from learner.losses.td_targets import Targets
from learner.networks.model import SideInputs
from learner.networks.models import model_of
from learner.replay.chunk import Chunk
from learner.replay.feed import CHUNK_UPDATES
from ringside.bench.parts.memory_paths import SEED
from shared.memory.run_memory import Plan


class Passes:
    """Target values of a chunk, and forward and backward of the online network, one update after the other.

    Nothing is gathered, and there is no loss of the updates and no optimiser.

    Attributes:
        online: the network that learns.
        chunk: the transitions, and what was computed of them.
        gradient: where the last backward pass wrote, in the order of `online`.
    """

    def __init__(self, plan: Plan, device: torch.device, precision: str) -> None:
        """Fresh networks, screens of noise."""
        network, extend, self._batch = plan.network, plan.config.extend, plan.config.learn.batch_size
        self.online, target = (model_of(network, device, precision) for _ in range(2))
        for model in (self.online, target):
            model.to_inner(initial_parameters(network, SEED), model.master)
            model.cast()
        self.gradient = torch.zeros_like(self.online.shadow)
        self.online.gradient_into(self.gradient)
        method = method_of(network, extend, device)
        self._targets = Targets(target, self.online, method, extend.n_step)
        self.chunk = Chunk.of(
            CHUNK_UPDATES, self._batch, model=self.online, method=method, n_step=extend.n_step, device=device
        )
        self.chunk.blocks.random_(0, 256)
        self.chunk.chosen[:, 0] = 1.0
        self.chunk.discount.fill_(plan.config.learn.discount)
        self.chunk.draw(SEED, 0, 0)
        on_cpu = device.type == "cpu"
        self._aside = Aside(own_thread=on_cpu, stream=None if on_cpu else torch.cuda.Stream(device))
        atoms = method.samples or network.atoms
        self._outputs_gradient = torch.randn(self._batch, network.actions, atoms, device=device)

    def run(self) -> None:
        """All passes of `CHUNK_UPDATES` updates."""
        chunk, online = self.chunk, self.online
        self._targets.prepare(chunk)
        for index in range(CHUNK_UPDATES):
            part, noise = slice(index * self._batch, (index + 1) * self._batch), slice(index, index + 1)
            self._targets.of(chunk, part, noise)
            beside = SideInputs.of(chunk.fractions[part], chunk.noise[noise])
            past = online.forward(chunk.blocks[part], 0, beside, learns=True)
            online.backward(past, self._outputs_gradient, self._aside)
            self._aside.settle()
