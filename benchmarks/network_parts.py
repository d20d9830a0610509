"""Measurements of the learner and of inference, each in a process set up as in a run.

The learner's limit is its *passes*: target values of a chunk, then forward and backward passes of its updates, one
after the other, with no gather, no loss and no optimizer. A learner computes the targets of later updates in parallel,
so it can exceed the limit if cores or the GPU have spare capacity. (Engine and policy compare their arithmetic with
float32 when they are made.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.harness import Figure, WrongResult, seconds_per_call
from benchmarks.memory_paths import SEED, fill
from learner.engine.accelerator import accelerator_of, is_gpu
from learner.engine.engine import Engine
from learner.engine.interfaces import CHUNK_UPDATES
from learner.engine.prefetcher import Graphs
from learner.engine.side_stream import make_side_stream
from learner.learner import Rounds, prepare
from learner.losses.method import ValueMethod, make_method
from learner.losses.td_learning import TDLearning
from learner.make_engine import make_engine
from learner.networks.make_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter
from shared.process.child import Doorbells

WINDOW_STEPS = 100_000
"""Largest replay buffer, in steps: 0.7 GB exceeds any cache, and a million steps would take long to fill."""
BATCHES = {"cpu": (2, 8, 32), "cuda": (32, 96, 192)}
"""Batch sizes of inference by device type; a run takes 32 on a CPU and all envs on a GPU."""
FOREVER = np.iinfo(np.int64).max


def rounds_without_others(memory: Memory) -> tuple[Engine, Rounds]:
    """The learner's own loop and its engine in a process that is no part of a run: nothing waits for a scribe."""
    board, plan = memory.board, memory.plan
    board.written[:] = FOREVER
    engine = make_engine(plan.config, plan.network, memory.ring)
    waiter = Waiter(board, Role.LEARNER, Doorbell.create())
    doorbells = tuple(Doorbell.create().fd for _ in range(len(plan.processes)))
    rounds = Rounds(memory, waiter, engine, Doorbells(doorbells, plan.processes))
    rounds.restore()
    return engine, rounds


def learner_alone(plan: Plan) -> Callable[[float], float]:
    """A worker's measurement: updates/s of the learner's own loop with its commits, over whole rounds.

    All lanes are marked as finished beforehand, on a replay buffer of noise. One round warms up.
    """
    prepare(plan.config)
    window = min(plan.config.learn.replay_size, max(WINDOW_STEPS, 2 * plan.run_schedule.round_steps))
    # There is no evaluator to read the versions; the rounds may exceed those of the run.
    config = plan.config.with_settings(eval_every_steps=0, replay_size=window)
    memory = Memory.create(Plan(config, plan.actions))
    fill(memory.ring, plan.actions)
    memory.board.lane_finished.publish_all(FOREVER)
    schedule, (_, rounds) = memory.run_schedule, rounds_without_others(memory)
    next_round = schedule.first_learning_round + schedule.window_ticks // schedule.round_ticks
    rounds.run_round(next_round)

    def measure(seconds: float) -> float:
        nonlocal next_round
        first, began = next_round + 1, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds or next_round < first:
            next_round += 1
            rounds.run_round(next_round)
        return (schedule.updates_before(next_round + 1) - schedule.updates_before(first)) / took

    return measure


class Passes:
    """Target values of a chunk, then forward and backward passes of the online network, update by update.

    Attributes:
        online: the online network.
        chunk: the transitions, and their target values.
        gradient: output of the last backward pass, in the packed layout of `online`.
    """

    def __init__(self, plan: Plan) -> None:
        """Initialize networks, and fill the frames with noise."""
        network, algorithm, self._batch = plan.network, plan.config.algorithm, plan.config.learn.batch_size
        device = torch.device(plan.config.machine.device)
        self.online, target = (make_model(network, device, plan.config.machine.precision) for _ in range(2))
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


def passes(plan: Plan) -> Callable[[float], float]:
    """A worker's measurement: updates/s of the passes of updates."""
    prepare(plan.config)
    device, body = torch.device(plan.config.machine.device), Passes(plan).run

    def settle() -> None:
        if is_gpu(device):
            accelerator_of(device).synchronize(device)

    if is_gpu(device):  # as a run executes it
        graphs = Graphs(device)
        graphs.capture("body", body)
        body = partial(graphs.replay, "body")
    body = torch.inference_mode()(body)
    return lambda seconds: CHUNK_UPDATES / seconds_per_call([body], seconds, settle)[0]


def inference(plan: Plan) -> Callable[[float], list[Figure]]:
    """A worker's measurement: from stacks of frames in memory to values, by batch size."""
    policies = {batch: make_policy(plan, batch) for batch in BATCHES[plan.config.machine.device.partition(":")[0]]}

    def measure(seconds: float) -> list[Figure]:
        figures = []
        for batch, answer in policies.items():
            (each,) = seconds_per_call([answer], seconds)
            note = f"{1e6 * each / batch:,.0f} us a row"
            name = f"inference, {plan.config.machine.precision}, {batch}"
            figures.append(Figure(name, batch / each, "rows/s", note=note))
        return figures

    return measure


def make_policy(plan: Plan, batch: int) -> Callable[[], object]:
    """A function that answers a batch of noise, and raises `WrongResult` if an answer differs from the first one."""
    prepare(plan.config)
    machine = plan.config.machine
    torch.set_num_threads(machine.inference_threads)
    policy = Policy(plan.network, torch.device(machine.device), machine.precision, batch)
    policy.load(initial_parameters(plan.network, SEED))
    shape = (batch, *plan.network.frames.observation)
    stacks = np.random.default_rng(SEED).integers(0, 256, shape, np.uint8)
    expected = policy.values(stacks).copy()

    def answer() -> None:
        if not np.array_equal(policy.values(stacks), expected):
            raise WrongResult("The same stacks were answered with other values.")

    return answer
