"""Forward and backward passes of a chunk of updates, for any network and method, and nothing else."""

from __future__ import annotations

import torch

from learner.engine.initialization import initial_parameters
from learner.engine.interfaces import CHUNK_UPDATES
from learner.engine.side_stream import make_side_stream
from learner.losses.method import ValueMethod, make_method
from learner.losses.td_learning import TDLearning
from learner.networks.make_model import make_model
from ringside.bench.system_parts.memory_paths import SEED
from shared.memory.plan import Plan


class Passes:
    """Target values of a chunk, then forward and backward passes of the online network, update by update.

    There is no gather, no loss and no optimizer.

    Attributes:
        online: the online network.
        chunk: the transitions, and their target values.
        gradient: output of the last backward pass, in the packed layout of `online`.
    """

    def __init__(self, plan: Plan, device: torch.device, precision: str) -> None:
        """Initialize networks, and fill the frames with noise."""
        network, algorithm, self._batch = plan.network, plan.config.algorithm, plan.config.learn.batch_size
        self.online, target = (make_model(network, device, precision) for _ in range(2))
        for model in (self.online, target):
            model.pack(initial_parameters(network, SEED), model.params)
            model.sync_copy()
        self.gradient = torch.zeros_like(self.online.params_bf16)
        self.online.gradient_into(self.gradient)
        method = make_method(network, algorithm, device)
        assert isinstance(method, ValueMethod), "methods with a replay alone are measured here"
        self._learning = TDLearning(self.online, target, method)
        self.chunk = self._learning.make_chunk(CHUNK_UPDATES, self._batch)
        self._minibatches = [self.chunk.minibatch(index) for index in range(CHUNK_UPDATES)]
        self.chunk.blocks.random_(0, 256)
        self.chunk.action_one_hot[:, 0] = 1.0
        self.chunk.discount.fill_(plan.config.learn.discount)
        self.chunk.draw_random_inputs(SEED, 0, 0)
        self._side_stream = make_side_stream(device)
        atoms = method.samples or network.atoms
        self._outputs_gradient = torch.randn(self._batch, network.outputs, atoms, device=device)

    def run(self) -> None:
        """Run all passes of `CHUNK_UPDATES` updates."""
        chunk, online = self.chunk, self.online
        self._learning.prepare(chunk)
        for minibatch in self._minibatches:
            self._learning.targets(minibatch)
            saved = online.forward(minibatch.blocks, 0, minibatch.extra_inputs, learns=True)
            online.backward(saved, self._outputs_gradient, self._side_stream)
            self._side_stream.settle()
