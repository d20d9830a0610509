"""The learner alone: its rounds on a replay of noise, in a process set up as in a run.

Also what no learner can do an update without, over and over: of a plain network the matrix products, of others the
passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from multiprocess.connection import Connection

from ringside.bench.harness.child_process import Child
from ringside.bench.harness.tables import WrongResult
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory, Plan
from shared.memory.wait import Doorbell, Waiter

if TYPE_CHECKING:
    import torch

WINDOW_STEPS = 100_000
"""Most steps of the replay; 0.7 GB, far beyond any cache, where a million would take long to fill."""
PACE_UPDATES = 64
"""Least updates of a round for `learner_pace` on a GPU; fewer take no longer than the round's commit."""
BOUND_SHARE = 0.25
"""Share of the learner's seconds for measuring its bound."""
SLOWEST = 1.0
"""Updates/s below which what bounds a learner is not measured: some chunks of it would take minutes."""


class Alone(NamedTuple):
    """Figures of the learner alone."""

    updates_per_second: float
    bound_per_second: float | None
    """Updates/s of nothing but what `bound_name` names; None: it was not asked for, or takes too long."""


def bound_name(plan: Plan) -> str:
    """Name of the bound of a learner: the sum of its matrix products, or of its passes where products are not counted.

    These come one after the other, where a learner computes the targets of coming updates beside the present ones: with
    cores or a GPU to spare it can be faster.
    """
    return "matrix products of the updates" if plan.network.plain else "passes of the updates"


def learner_alone(plan: Plan, seconds: float, *, bounded: bool = True) -> Alone:
    """Learn for `seconds` with the device, precision, threads and sizes of a run; then, if `bounded`, what bounds it.

    Raises:
        CannotRun: memory does not suffice, or the process ended early.
        WrongResult: its numbers ceased to be finite, or it did another number of updates than it was asked for.
    """
    with Child(_learn, (plan, seconds, bounded)) as child:
        return Alone(*child.answer(seconds * (1 + BOUND_SHARE)))


def learner_pace(plan: Plan, seconds: float) -> float:
    """Steps/s that the learner alone can follow, in short rounds, so that none takes long. Raises as above."""
    learn, envs = plan.config.learn, plan.config.play.envs
    least = 1 if plan.config.machine.device == "cpu" else PACE_UPDATES
    config = plan.config.with_settings(round_steps=max(envs, least * learn.train_every))
    alone = learner_alone(Plan(config, plan.actions), seconds, bounded=False)
    return alone.updates_per_second * config.learn.train_every


class Solo:
    """Whole rounds of the learner's own loop, commits included; the lanes say that they have finished all of them."""

    def __init__(self, plan: Plan) -> None:
        """Everything in this process, which has not computed anything yet; the first round warms up."""
        from learner.learner import Rounds, prepare
        from learner.make_engine import make_engine
        from ringside.bench.system_parts.memory_paths import fill

        config = plan.config.with_settings(eval_every_steps=0)  # no evaluator takes the versions
        prepare(config)
        window = min(config.learn.replay_size, max(WINDOW_STEPS, 2 * plan.run_schedule.round_steps))
        memory = Memory.create(Plan(replace(config, learn=replace(config.learn, replay_size=window)), plan.actions))
        fill(memory.ring, plan.actions)
        self._board, self._run_schedule = memory.board, memory.run_schedule
        # It may continue beyond the end of the run, and no scribe records it.
        self._board.written[:] = np.iinfo(np.int64).max
        self._board.lane_finished.publish_all(np.iinfo(np.int64).max)
        self.engine = make_engine(memory.plan.config, memory.plan.network, memory.ring)
        self._rounds = Rounds(memory, Waiter(self._board, Role.LEARNER, Doorbell.create()), self.engine, [])
        self._rounds.restore()
        self._round = (
            self._run_schedule.first_learning_round + self._run_schedule.window_ticks // self._run_schedule.round_ticks
        )
        self.round()

    def round(self) -> None:
        """The next round."""
        self._rounds.run_round(self._round)
        self._round += 1

    def updates_per_second(self, seconds: float) -> float:
        """Updates per second over whole rounds, at least one, for `seconds`.

        Raises:
            WrongResult: the number of updates is wrong.
        """
        first, before, began = self._round, int(self._board.updates[0]), time.perf_counter()
        while True:
            self.round()
            if (took := time.perf_counter() - began) >= seconds:
                break
        asked = self._run_schedule.updates_before(self._round) - self._run_schedule.updates_before(first)
        if (done := int(self._board.updates[0]) - before) != asked:
            raise WrongResult(f"The learner did {done:,} updates instead of {asked:,}.")
        return done / took


def _learn(connection: Connection, plan: Plan, seconds: float, bounded: bool) -> None:
    solo = Solo(plan)
    speed = solo.updates_per_second(seconds)
    solo.engine.settle()  # what follows is captured, and a capture forbids much to other threads
    connection.send((speed, _bound(plan, BOUND_SHARE * seconds) if bounded and speed >= SLOWEST else None))


def _bound(plan: Plan, seconds: float) -> float:
    """Updates a second of nothing but what `bound_name` names: target values of a chunk, then its updates."""
    import torch

    from learner.replay.replay_source import CHUNK_UPDATES
    from ringside.bench.harness.devices import Device
    from ringside.bench.harness.timing import seconds_per_call
    from ringside.bench.network_parts.passes import Passes

    at, precision = torch.device(plan.config.machine.device), plan.config.machine.precision
    device = Device(at, [precision])
    body = torch.inference_mode()(_products(plan, at) if plan.network.plain else Passes(plan, at, precision).run)
    (each,) = seconds_per_call([device.captured(body)], seconds, device.settle)
    return CHUNK_UPDATES / each


def _products(plan: Plan, device: torch.device) -> Callable[[], None]:
    """The matrix products of a chunk of updates."""
    import torch

    from learner.engine.device import compute_dtype
    from ringside.bench.network_parts.products import ChunkProducts

    learn = plan.config.learn
    outputs, double = plan.actions * plan.network.atoms, plan.config.algorithm.double
    like = torch.zeros(1, device=device, dtype=compute_dtype(plan.config.machine.precision))
    return ChunkProducts(learn.network, outputs, learn.batch_size, like, double=double).run
