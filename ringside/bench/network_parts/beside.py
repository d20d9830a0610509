"""Learner and inference server in separate processes, set up as in a run; each alone, or both at once."""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from multiprocess.connection import Connection

from ringside.bench.harness.child_process import Child
from ringside.bench.harness.tables import WrongResult
from shared.config.settings import ResolvedConfig
from shared.frame_shape import FRAME_SIDE, STACK
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.network_spec import Network

ACTIONS = 4
SEED = 1
DIGEST_UPDATES = 45
"""Number of updates before parameters are compared: some whole chunks and part of one, to cover short graphs too."""
WARM_ANSWERS = 20
END = "end"
"""Message that ends a process between two operations: under MPS, killing one client might hang the others."""


class Updates(NamedTuple):
    """Speed of a learner, and a digest of its parameters."""

    per_second: float
    digest: str
    """Digest of the parameters after `DIGEST_UPDATES` updates."""

    def check(self, first: dict[tuple[Any, ...], str], same: tuple[Any, ...]) -> None:
        """Raise `WrongResult` unless the digest equals the first one stored under the key `same`."""
        if first.setdefault(same, self.digest) != self.digest:
            raise WrongResult("Its parameters differ from those of a learner with the same numbers.")


class Answers(NamedTuple):
    """Latencies of an inference server."""

    median_us: float
    late_us: float
    """99th percentile."""
    beside: float = 0.0
    """Updates/s of the learner that runs at the same time; 0 without one."""


def updates(config: ResolvedConfig, seconds: float) -> Updates:
    """Measure a learner alone for `seconds`. Raises `CannotRun` and `WrongResult`."""
    with Child(_learn, (config, seconds)) as child:
        return Updates(*child.answer(seconds))


def answers(
    config: ResolvedConfig, seconds: float, environment: dict[str, str], learner: BackgroundLearner | None = None
) -> Answers:
    """Measure an inference server that answers all envs repeatedly, and the speed of a concurrent `learner`.

    Raises `CannotRun` and `WrongResult`.
    """
    with Child(_answer, (config, seconds), environment) as child:
        child.answer()  # the server is warm
        if learner is not None:
            learner.per_second()  # reset its count
        median, late = child.answer(seconds)
        reached = 0.0 if learner is None else learner.per_second()
        child.finish(END)
        return Answers(median, late, reached)


class BackgroundLearner:
    """A learner that updates without pause for the duration of the block."""

    def __init__(self, config: ResolvedConfig, environment: dict[str, str]) -> None:
        self._child = Child(_learn, (config, float("inf")), environment)

    def per_second(self) -> float:
        """Updates per second since the last call, over whole rounds. Raises `CannotRun` and `WrongResult`."""
        return float(self._child.ask("tell"))

    def __enter__(self) -> BackgroundLearner:
        with ExitStack() as stack:
            stack.enter_context(self._child)
            self._child.answer()  # the learner is warm
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.finish(END)
        self._child.__exit__(kind, error, trace)


def _learn(connection: Connection, config: ResolvedConfig, seconds: float) -> None:
    """Run rounds of updates on a full window, until `END` if `seconds` is infinite; without commits and lanes."""
    from learner.learner import SLICE_UPDATES, prepare
    from learner.make_engine import make_engine
    from ringside.bench.system_parts.memory_paths import fill

    prepare(config)
    memory = Memory.create(Plan(config, ACTIONS))
    fill(memory.ring, ACTIONS)
    run_schedule, engine = memory.run_schedule, make_engine(memory.plan.config, memory.plan.network, memory.ring)
    engine.initialize()
    round_ = run_schedule.first_learning_round + run_schedule.window_ticks // run_schedule.round_ticks
    engine.begin_round(round_, round_ * run_schedule.round_ticks)
    engine.run(DIGEST_UPDATES)
    parameters = np.zeros(memory.plan.parameters.count, np.float32)
    engine.online_into(parameters)
    digest = hashlib.sha256(parameters.tobytes()).hexdigest()
    if seconds == float("inf"):
        connection.send("warm")
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        round_ += 1
        asked = engine.begin_round(round_, round_ * run_schedule.round_ticks)
        for _ in range(0, asked, SLICE_UPDATES):
            engine.run(SLICE_UPDATES)
        engine.prefetch(round_ + 1, (round_ + 1) * run_schedule.round_ticks)
        done += engine.end_round().updates  # waits for the GPU
        engine.update_target()
        if connection.poll():
            if connection.recv() == END:
                engine.settle()
                return
            connection.send(done / (time.perf_counter() - began))
            began, done = time.perf_counter(), 0
    connection.send((done / (time.perf_counter() - began), digest))


def _answer(connection: Connection, config: ResolvedConfig, seconds: float) -> None:
    """Answer requests and compare each answer with the first; after sending the times, go on until `END`."""
    import torch

    from learner.engine.initialization import initial_parameters
    from learner.learner import prepare
    from learner.networks.policy import Policy

    prepare(config)
    batch, network, machine = config.play.envs, Network(config.learn.network, ACTIONS), config.machine
    policy = Policy(network, torch.device(machine.device), machine.precision, batch)
    policy.load(initial_parameters(network, SEED))
    stacks = np.random.default_rng(SEED).integers(0, 256, (batch, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
    wanted = policy.values(stacks)
    for _ in range(WARM_ANSWERS):
        policy.values(stacks)
    connection.send("warm")
    times: list[int] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times:
        began = time.perf_counter_ns()
        values = policy.values(stacks)
        times.append(time.perf_counter_ns() - began)
        if not np.array_equal(values, wanted):
            raise WrongResult("The same stacks were answered with other values.")
    median, late = np.percentile(times, [50, 99]) / 1e3
    connection.send((float(median), float(late)))
    while not connection.poll():
        policy.values(stacks)
