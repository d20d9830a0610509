"""All of DQN in one process, made of the parts of a run: lanes, ring, network, engine; nothing runs in parallel.

The order of steps and updates is that of a run with `--schedule alternate --actors 1`. With the network of
`learner/networks/fused.py` the weights are the same too, bit for bit. The ladder measures it with a network of PyTorch
layers in float32 in its place, as users of PyTorch would write it. Updates always run in the engine, in one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import vector_to_parameters

from actors.lane import Lane
from actors.make_env import make_env
from benchmarks.harness import work_rate
from benchmarks.network_parts import rounds_without_others
from learner.learner import prepare
from learner.networks.policy import Policy, greedy
from shared.errors import ConfigError
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.network_spec import CONVOLUTIONAL

WARM_UPDATES = 32
"""Updates before the clock starts."""


class Layers:
    """A network of PyTorch layers in float32."""

    def __init__(self, plan: Plan, *, gradients: bool) -> None:
        """`gradients`: True if every inference builds its autograd graph."""
        convolutions, hidden = CONVOLUTIONAL[plan.network.name]
        body = [layer for shape in convolutions for layer in (nn.LazyConv2d(*shape), nn.ReLU())]
        head = (nn.Flatten(), nn.LazyLinear(hidden), nn.ReLU(), nn.LazyLinear(plan.actions))
        self._device, self._gradients = torch.device(plan.config.machine.device), gradients
        self.layers = nn.Sequential(*body, *head).to(self._device)
        self.layers(torch.zeros(1, *plan.network.frames.observation, device=self._device))
        self.layers.requires_grad_(gradients)

    def load(self, flat: NDArray[np.float32]) -> None:
        """Load parameters float32[P], in the canonical layout of `shared.network_parameters`."""
        vector_to_parameters(torch.from_numpy(flat.copy()).to(self._device), self.layers.parameters())

    def values(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .) float32[n, actions] of stacks uint8[n, 4, 84, 84]."""
        with torch.set_grad_enabled(self._gradients):
            q = self.layers(torch.from_numpy(stacks).to(self._device).float() / 255.0)
        values: NDArray[np.float32] = q.detach().cpu().numpy()
        return values


class Serial:
    """All of a run in one process.

    Attributes:
        round: next round to play.
    """

    def __init__(self, plan: Plan, network: Layers | Policy) -> None:
        """Begin a run; call `learner.learner.prepare` first. Raises `ConfigError` unless the schedule is alternate."""
        config = plan.config.with_settings(eval_every_steps=0)  # there is no evaluator
        if config.learn.schedule != "alternate" or plan.actors != 1:
            raise ConfigError("One process plays and learns in turns: it needs --schedule alternate and --actors 1.")
        self.memory = Memory.create(Plan(config, plan.actions))
        self.run_schedule = plan.run_schedule
        self.round = 0
        self._network = network
        envs = [make_env(config.play, config.run.seed, env, training=True) for env in range(plan.run_schedule.envs)]
        width = plan.run_schedule.lane_envs
        self._lanes = [
            Lane(self.memory.lane(index), self.memory.plan, envs[index * width : (index + 1) * width], actor=0)
            for index in range(plan.run_schedule.lanes)
        ]
        for lane in self._lanes:
            lane.start()
        self._engine, self._rounds = rounds_without_others(self.memory)  # which waits for the lanes
        self._load()

    def play_round(self) -> int:
        """Play the steps of a round, then run its updates; return the steps. Raises `NonFiniteError`."""
        round_ticks, before = self.run_schedule.round_ticks, self.updates
        for tick in range(self.round * round_ticks, (self.round + 1) * round_ticks):
            self._answer(tick)
            for lane in self._lanes:
                lane.step()
        self._rounds.run_round(self.round)
        self.round += 1
        if self.updates > before:
            self._load()
        return self.run_schedule.round_steps

    @property
    def steps(self) -> int:
        """Steps played, of all envs."""
        return self.round * self.run_schedule.round_steps

    @property
    def updates(self) -> int:
        """Updates of the learner."""
        return int(self.memory.board.updates[0])

    def parameters(self) -> NDArray[np.float32]:
        """The parameters of the learner: float32[P] in canonical layout."""
        flat = np.empty(self.memory.plan.parameters.count, np.float32)
        self._engine.store({"online": flat})
        return flat

    def _answer(self, tick: int) -> None:
        """Choose the actions of all envs at this tick, in one batch."""
        run_schedule, mailbox, ring = self.run_schedule, self.memory.mailbox, self.memory.ring
        rows, mask = ring.stack_rows(np.arange(run_schedule.envs), np.full(run_schedule.envs, tick))
        stacks = ring.flat["frame"][rows]
        stacks[~mask] = 0
        actions = greedy(self._network.values(stacks)).astype(np.uint8)
        lanes, numbers = np.arange(run_schedule.lanes), mailbox.request.values.copy()
        mailbox.answer(lanes, numbers, actions.reshape(run_schedule.lanes, run_schedule.lane_envs))

    def _load(self) -> None:
        """Load the present parameters into the network of the next round."""
        self._network.load(self.parameters())


def serial_speed(plan: Plan, gradients: bool) -> Callable[[float], float]:
    """A worker's measurement: steps/s over whole rounds, after learning has begun, with a network of layers.

    `gradients`: True if autograd stays on in inference.
    """
    prepare(plan.config)
    serial = Serial(plan, Layers(plan, gradients=gradients))
    while serial.updates < WARM_UPDATES:
        serial.play_round()

    return partial(work_rate, serial.play_round)
