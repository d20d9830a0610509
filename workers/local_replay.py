"""Gradients of a value-based method by transitions from the newest steps of one worker."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learner.losses.method import ValueMethod
from learner.losses.td_learning import TDLearning
from learner.networks.model import Model
from learner.replay.replay_frames import HostFrames
from learner.replay.sampling import Replay
from shared.memory.run_memory import Memory
from shared.prng import Stream, bits


class LocalReplay:
    """The last `--local-replay` steps of each worker, as a source of gradients."""

    def __init__(self, memory: Memory, model: Model, target: Model, method: ValueMethod) -> None:
        """Gradients by the parameters of `model`, with TD targets of `target`."""
        config, run_schedule = memory.plan.config, memory.run_schedule
        self._run_schedule, self._model = run_schedule, model
        self._batch, self._seed = config.learn.batch_size, config.run.seed
        self._valid = memory.ring.field["valid"]
        self._frames = HostFrames(memory.ring)
        self._replay = Replay(memory.ring, self._frames, config.learn, self._seed)
        self._learning = TDLearning(model, target, method)
        self._chunk = self._learning.make_chunk(1, self._batch)
        self._minibatch = self._chunk.minibatch(0)
        self._actions = torch.arange(memory.plan.network.actions)

    def differentiate(self, worker: int, number: int) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Return a forward pass of the batch of gradient `number`, the gradient by its outputs, and metrics."""
        self._learning.anneal(partial(self._run_schedule.annealed, number))
        first, end = self._replay.window.samplable((number + 1) * self._run_schedule.round_ticks)
        envs = self._run_schedule.lane_envs
        starts = np.flatnonzero(self._valid[worker, np.arange(first, end) % self._run_schedule.capacity])
        generator = np.random.Generator(np.random.Philox(key=[bits(self._seed, Stream.REPLAY, worker), number]))
        tick, env = np.divmod(starts[generator.integers(0, len(starts), self._batch)], envs)
        batch = self._replay.transitions(first + tick, worker * envs + env)
        self._frames.select(batch.rows, batch.frame_mask, self._chunk.blocks)
        self._chunk.write_transitions(batch, self._actions)
        self._chunk.draw_random_inputs(self._seed, number, worker)
        self._learning.prepare(self._chunk)
        saved: Any = self._model.forward(self._chunk.blocks, 0, self._minibatch.extra_inputs, learns=True)
        learned = self._learning.learn(saved.outputs.detach(), self._minibatch, costly_metrics=True)
        return saved, learned.gradient, dict(learned.metrics)
