"""Gradients by the newest steps of one worker: one by one or as sequences, or by transitions drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.losses.method import ValueMethod
from learner.losses.td_learning import TDLearning
from learner.networks.model import ExtraInputs, Model, Recurrence
from learner.replay.replay_frames import HostFrames
from learner.replay.sampling import Replay
from learner.rollout.on_policy_method import OnPolicyMethod
from learner.rollout.step_reader import StepReader
from shared.memory.run_memory import Memory
from shared.prng import Stream, bits, philox

Choose = Callable[[int, int, NDArray[np.int64]], list[int]]
"""Function from a worker, a tick and the best action of each of its envs to the actions that its policy takes."""


class NewestSteps:
    """The steps that a worker has played since its last gradient, as a source of gradients."""

    def __init__(
        self, memory: Memory, model: Model, target: Model | None, method: OnPolicyMethod, choose: Choose
    ) -> None:
        """Gradients by the parameters of `model`; `target` is the target network, if the method has one."""
        run_schedule, network = memory.run_schedule, memory.plan.network
        self._run_schedule, self._model, self._target, self._method = run_schedule, model, target, method
        self._choose = choose
        envs = run_schedule.lane_envs
        self._readers = [
            StepReader(memory.ring, memory.plan.config.learn, method, range(first, first + envs))
            for first in range(0, run_schedule.envs, envs)
        ]
        rows = (run_schedule.round_ticks + 1) * envs
        self._blocks = torch.zeros(network.frames.blocks(rows), dtype=torch.uint8)
        self._by_outputs = torch.zeros(rows, network.outputs, network.atoms)

    def differentiate(self, worker: int, number: int) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Return a forward pass of the steps of gradient `number`, the gradient by its outputs, and metrics."""
        reader, method = self._readers[worker], self._method
        method.anneal(partial(self._run_schedule.annealed, number))
        tick, env = reader.grid((number + 1) * self._run_schedule.round_ticks)
        reader.gather(env, tick, self._blocks)
        blocks, extra_inputs = self._inputs(reader, tick, env)
        saved: Any = self._model.forward(blocks, 0, extra_inputs, learns=True)
        outputs = self._by_tick(saved.outputs.detach())
        rollout = reader.rollout(tick, env, outputs.flatten(1).numpy())
        if self._target is not None:
            of_target = self._by_tick(self._target.forward(blocks, 0, extra_inputs).outputs).numpy()
            last = self._choose(worker, int(tick[-1]), rollout.outputs[-1].argmax(axis=1))
            of_target = of_target.reshape(rollout.outputs.shape)
            rollout = rollout._replace(target_outputs=of_target, next_action=np.array(last))
        steps = reader.columns(rollout, method.targets(rollout), self._blocks)
        n = len(steps.weight)
        learned = method.learn(outputs[:n], steps, costly_metrics=True)
        if method.mean_gradient:
            learned.gradient.mul_(steps.weight.sum())
        self._by_outputs[:n] = learned.gradient  # the last tick, which opens the next round, has none
        return saved, self._by_row(self._by_outputs), dict(learned.metrics)

    def _inputs(
        self, reader: StepReader, tick: NDArray[np.int64], env: NDArray[np.int64]
    ) -> tuple[Tensor, ExtraInputs]:
        """Inputs of the network for the steps of `reader.grid`, whose blocks are gathered."""
        return self._blocks, ExtraInputs()

    def _by_tick(self, rows: Tensor) -> Tensor:
        """Rows of the network, in the order of `reader.grid`: by tick and then env."""
        return rows

    def _by_row(self, steps: Tensor) -> Tensor:
        """The inverse of `_by_tick`."""
        return steps


class NewestSequences(NewestSteps):
    """The steps that a worker has played since its last gradient, as one sequence of each of its envs.

    A sequence begins with the state that acting had at that moment, which lies in the ring. The network reads it from
    there on, with a state of zeros wherever an episode begins. Gradients end at the first tick (Mnih et al. 2016).
    """

    def __init__(
        self, memory: Memory, model: Model, target: Model | None, method: OnPolicyMethod, choose: Choose
    ) -> None:
        """Arguments as for `NewestSteps`."""
        super().__init__(memory, model, target, method, choose)
        envs, units, rows = memory.run_schedule.lane_envs, memory.run_schedule.recurrent_units, len(self._blocks)
        self._row_steps = torch.arange(rows).view(-1, envs).t().flatten()
        self._step_rows = self._row_steps.argsort()
        self._row_blocks = torch.zeros_like(self._blocks)
        self._recurrence = Recurrence(torch.zeros(envs, 2, units), torch.zeros(rows))

    def _inputs(
        self, reader: StepReader, tick: NDArray[np.int64], env: NDArray[np.int64]
    ) -> tuple[Tensor, ExtraInputs]:
        """Blocks and starts of episodes by env and then tick, and the states before the first ticks."""
        state, start = map(torch.from_numpy, reader.sequences(tick, env))
        self._recurrence.state.copy_(state)
        torch.index_select(start, 0, self._row_steps, out=self._recurrence.start)
        torch.index_select(self._blocks, 0, self._row_steps, out=self._row_blocks)
        return self._row_blocks, ExtraInputs(recurrence=self._recurrence)

    def _by_tick(self, rows: Tensor) -> Tensor:
        return rows[self._step_rows]

    def _by_row(self, steps: Tensor) -> Tensor:
        return steps[self._row_steps]


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
        self._actions = torch.arange(memory.plan.network.actions)

    def differentiate(self, worker: int, number: int) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Return a forward pass of the batch of gradient `number`, the gradient by its outputs, and metrics."""
        self._learning.anneal(partial(self._run_schedule.annealed, number))
        first, end = self._replay.window.samplable((number + 1) * self._run_schedule.round_ticks)
        envs = self._run_schedule.lane_envs
        starts = np.flatnonzero(self._valid[worker, np.arange(first, end) % self._run_schedule.capacity])
        generator = philox(bits(self._seed, Stream.REPLAY, worker), number)
        tick, env = np.divmod(starts[generator.integers(0, len(starts), self._batch)], envs)
        batch = self._replay.transitions(first + tick, worker * envs + env)
        self._chunk.draw_random_inputs(self._seed, number, worker)
        self._frames.select(batch.rows, batch.frame_mask, self._chunk.blocks, self._chunk.augmentation)
        self._chunk.write_transitions(batch, self._actions)
        self._learning.prepare(self._chunk)
        saved: Any = self._model.forward(self._chunk.blocks, 0, self._chunk.extra_inputs, learns=True)
        learned = self._learning.learn(saved.outputs.detach(), self._chunk, costly_metrics=True)
        return saved, learned.gradient, dict(learned.metrics)
